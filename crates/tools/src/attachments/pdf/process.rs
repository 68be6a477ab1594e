//! The process: it restricts itself, reads the file from standard input, and writes [`Head`] and the text.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use pdf_extract::{Document, PlainTextOutput, output_doc_page};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::set_no_new_privs;
use serde::{Deserialize, Serialize};

use super::form;
use super::section::Section;
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

/// The first line of the output.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::attachments) struct Head {
    /// Pages of the document.
    pub(in crate::attachments) pages: usize,
    /// Pages that were read.
    pub(in crate::attachments) read: usize,
    /// Those of them that are broken, or need more memory than there is.
    pub(in crate::attachments) broken: usize,
    /// Fields of the form that have a value.
    pub(in crate::attachments) fields: usize,
    /// Whether a part of the text was left out, because it is longer than the limit.
    pub(in crate::attachments) is_cut: bool,
}

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
    let (head, text) = text_of(&file, max_pages, max_bytes)?;
    let head = serde_json::to_string(&head).map_err(|_| BROKEN)?;
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{head}").and_then(|()| out.write_all(text.as_bytes()));
    written.and_then(|()| out.flush()).map_err(|_| BROKEN)
}

/// The text of the first pages, and after it the filled fields of the form. At most `max_bytes` together.
///
/// # Errors
/// An exit code: [`BROKEN`] or [`ENCRYPTED`].
pub(super) fn text_of(file: &[u8], max_pages: usize, max_bytes: usize) -> Result<(Head, String), i32> {
    let mut document = Document::load_mem(file).map_err(|_| BROKEN)?;
    if document.is_encrypted() {
        // Many files are encrypted with the empty password, which every program may use.
        document.decrypt("").map_err(|_| ENCRYPTED)?;
    }
    // A panic costs the form, and the pages are read.
    let form = catch_unwind(AssertUnwindSafe(|| form::read(&document, max_bytes))).unwrap_or_default();
    let (mut head, mut pages) = pages_of(&document, max_pages, max_bytes);
    let Section { text: mut fields, fields: number, is_cut } = form;
    head.fields = number;
    // The values that a person has filled in count more than a long text: they get half of the room if they need it.
    let room = max_bytes.saturating_sub(pages.len() + 2).max(max_bytes / 2);
    head.is_cut |= is_cut | cut(&mut fields, room);
    let taken = if fields.is_empty() { 0 } else { fields.len() + 2 };
    head.is_cut |= cut(&mut pages, max_bytes.saturating_sub(taken));
    let parts: Vec<&str> = [pages.trim_end(), fields.trim_end()].into_iter().filter(|part| !part.is_empty()).collect();
    Ok((head, parts.join("\n\n")))
}

/// The text of the first pages. Reading ends after the page that exceeds `max_bytes`.
fn pages_of(document: &Document, max_pages: usize, max_bytes: usize) -> (Head, String) {
    let pages: Vec<u32> = document.get_pages().into_keys().collect();
    let (mut text, mut head) = (String::new(), Head { pages: pages.len(), ..Head::default() });
    for page in pages.iter().take(max_pages) {
        if text.len() >= max_bytes {
            head.is_cut = true;
            break;
        }
        let mut page_text = Vec::new();
        let mut output = PlainTextOutput::new(&mut page_text as &mut dyn Write);
        // A broken page is left out; the others are read.
        let outcome = output_doc_page(document, &mut output, *page);
        if let Err(error) = outcome {
            eprintln!("page {page}: {error}");
            head.broken += 1;
        }
        head.read += 1;
        text.push_str(String::from_utf8_lossy(&page_text).trim());
        text.push_str("\n\n");
    }
    text.truncate(text.trim_end().len());
    (head, text)
}

/// Shortens a text to `most` bytes. Returns whether it was longer.
fn cut(text: &mut String, most: usize) -> bool {
    let is_longer = text.len() > most;
    text.truncate(text.floor_char_boundary(most));
    is_longer
}
