//! The process: it restricts itself, reads the file from standard input, and writes [`belay_pdf::Head`] and the text.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::panic::catch_unwind;
use std::process::ExitCode;

use belay_pdf::{Unreadable, text_of};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::set_no_new_privs;

use crate::sandbox::launch::limits::restrict as restrict_resources;
use crate::sandbox::launch::stage::Limits;
use crate::sandbox::launch::{calls, descriptors, files};

/// The command of the process.
pub const COMMAND: &str = "read-pdf";

/// Limits of the process. 512 MiB: a page with a large embedded font needs about 100. 20 s of processor time: 100 pages
/// of text take about one.
const LIMITS: Limits = Limits { memory_mb: 512, processes: 4096, open_files: 16, file_mb: 0, cpu_s: 20 };

/// Exit code for a file that is no readable PDF.
pub(super) const BROKEN: i32 = 65;
/// Exit code for a file with a password.
pub(super) const ENCRYPTED: i32 = 66;

/// Restricts this process and reads a PDF from standard input. `args`: the pages and the bytes to read at most. Must be
/// called while the process has a single thread.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let numbers: Vec<usize> = args.into_iter().filter_map(|arg| arg.to_str()?.parse().ok()).collect();
    let [max_pages, max_bytes] = numbers[..] else {
        eprintln!("belay {COMMAND}: expects a number of pages and a number of bytes");
        return ExitCode::from(64);
    };
    if let Err(why) = restrict() {
        eprintln!("belay {COMMAND}: {why}");
        return ExitCode::from(69);
    }
    // A panic of the parser ends the process, and says so on standard error.
    let done = catch_unwind(|| convert(max_pages, max_bytes));
    match done {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(code)) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(_panic) => ExitCode::from(u8::try_from(BROKEN).unwrap_or(1)),
    }
}

fn restrict() -> Result<(), String> {
    descriptors::close_all_but(None)?;
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| format!("it cannot be tied to the process that started it: {errno}"))?;
    set_no_new_privs(true).map_err(|errno| format!("privileges cannot be given up for good: {errno}"))?;
    files::restrict_all()?;
    restrict_resources(&LIMITS)?;
    calls::restrict()?;
    calls::restrict_to_computing()
}

fn convert(max_pages: usize, max_bytes: usize) -> Result<(), i32> {
    let mut file = Vec::new();
    io::stdin().lock().read_to_end(&mut file).map_err(|_| BROKEN)?;
    let (head, text) = text_of(&file, max_pages, max_bytes).map_err(|why| match why {
        Unreadable::Broken => BROKEN,
        Unreadable::Encrypted => ENCRYPTED,
    })?;
    let head = serde_json::to_string(&head).map_err(|_| BROKEN)?;
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{head}").and_then(|()| out.write_all(text.as_bytes()));
    written.and_then(|()| out.flush()).map_err(|_| BROKEN)
}
