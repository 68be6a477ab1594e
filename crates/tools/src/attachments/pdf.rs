//! The text of a PDF, in a confined process of its own: `belay read-pdf`.
//!
//! PDF is complex and its readers have bugs, so the daemon never parses one. The process gets the file on standard
//! input and writes one line of JSON ([`Head`]) and the text. It restricts itself before it reads: no files, no network,
//! no other program, and limits of memory and processor time.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use belay_exec::{Exit, Launch, Processes, Stdin};
use bytes::Bytes;
use pdf_extract::{Document, PlainTextOutput, output_doc_page};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::set_no_new_privs;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::sandbox::launch::limits::restrict as restrict_resources;
use crate::sandbox::launch::stage::Limits;
use crate::sandbox::launch::{calls, descriptors, files};

/// The command of the process.
pub const COMMAND: &str = "read-pdf";

/// Limits of the process. 512 MiB: a page with a large embedded font needs about 100. 20 s of processor time: 100 pages
/// of text take about one.
const LIMITS: Limits = Limits { memory_mb: 512, processes: 4096, open_files: 16, file_mb: 0, cpu_s: 20 };

/// Longest time for one file.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Longest wait for the turn of a file. 30 s, as long as one file may take.
pub(super) const TURN_LIMIT: Duration = Duration::from_secs(30);

/// Largest first line.
const HEAD_MAX_BYTES: usize = 256;

/// The first line of the output.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    /// Pages of the document.
    pub(super) pages: usize,
    /// Pages that were read.
    pub(super) read: usize,
    /// Those of them that are broken, or need more memory than there is.
    pub(super) broken: usize,
}

/// Reads PDF files, one at a time: each may need as much memory as its limit.
#[derive(Clone)]
pub(super) struct PdfReader {
    program: PathBuf,
    processes: Arc<Processes>,
    turn: Arc<Semaphore>,
}

impl PdfReader {
    pub(super) fn new(program: PathBuf, processes: Arc<Processes>) -> Self {
        Self { program, processes, turn: Arc::new(Semaphore::new(1)) }
    }

    /// Waits for the turn of a file; `None`: it did not come within [`TURN_LIMIT`].
    pub(super) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(TURN_LIMIT, self.turn.clone().acquire_owned()).await.ok()?.ok()
    }

    /// The text of the first pages.
    ///
    /// # Errors
    /// The reason in plain words: the file is broken, is encrypted, or exceeds a limit of the process.
    ///
    /// # Cancel safety
    /// If the future is dropped, the process is ended.
    pub(super) async fn read(
        &self,
        _turn: OwnedSemaphorePermit,
        file: &Bytes,
        max_pages: u32,
        max_bytes: usize,
    ) -> Result<(Head, String), String> {
        let launch = Launch {
            program: self.program.clone().into(),
            args: [COMMAND.to_owned(), max_pages.to_string(), max_bytes.to_string()].map(OsString::from).into(),
            env: Vec::new(),
            directory: Path::new("/").to_owned(),
            stdin: Stdin::Bytes(file.to_vec()),
            isolated: false,
            sealed: None,
        };
        let started = self.processes.start_without_run(launch, "reader of a PDF").await;
        let mut running = started.map_err(|error| {
            tracing::warn!(%error, "the reader of a PDF was not started");
            "its reader could not be started".to_owned()
        })?;
        let (stdout, mut stderr) = running.take_output().ok_or("its reader has no pipes")?;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let most = (max_bytes + HEAD_MAX_BYTES) as u64;
        let work = async {
            let mut stdout = stdout.take(most);
            let reading = async { tokio::join!(stdout.read_to_end(&mut out), stderr.read_to_end(&mut err)) };
            tokio::join!(running.wait(), reading).0
        };
        let exit = tokio::time::timeout(TIME_LIMIT, work).await;
        running.end().await;
        if !err.is_empty() {
            tracing::debug!(stderr = %String::from_utf8_lossy(&err[..err.len().min(500)]), "the reader of a PDF reported");
        }
        match exit {
            Ok(Exit::Code(0)) => parse(&out).ok_or_else(|| "its reader gave no text".to_owned()),
            Ok(Exit::Code(ENCRYPTED)) => Err("it is encrypted".to_owned()),
            Ok(Exit::Code(BROKEN)) => Err("it is broken, or no PDF".to_owned()),
            Ok(_) | Err(_) => Err("reading it takes more time or memory than is given for it here".to_owned()),
        }
    }
}

fn parse(out: &[u8]) -> Option<(Head, String)> {
    let end = out.iter().position(|byte| *byte == b'\n')?;
    let head = serde_json::from_slice(&out[..end]).ok()?;
    Some((head, String::from_utf8_lossy(&out[end + 1..]).into_owned()))
}

/// Exit code for a file that is no readable PDF.
const BROKEN: i32 = 65;
/// Exit code for a file with a password.
const ENCRYPTED: i32 = 66;

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
    let done = std::panic::catch_unwind(|| convert(max_pages, max_bytes));
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
    let mut document = Document::load_mem(&file).map_err(|_| BROKEN)?;
    if document.is_encrypted() {
        // Many files are encrypted with the empty password, which every program may use.
        document.decrypt("").map_err(|_| ENCRYPTED)?;
    }
    let pages: Vec<u32> = document.get_pages().into_keys().collect();
    let (mut text, mut read, mut broken) = (String::new(), 0, 0);
    for page in pages.iter().take(max_pages) {
        if text.len() >= max_bytes {
            break;
        }
        let mut page_text = Vec::new();
        let mut output = PlainTextOutput::new(&mut page_text as &mut dyn Write);
        // A broken page is left out; the others are read.
        let outcome = output_doc_page(&document, &mut output, *page);
        if let Err(error) = outcome {
            eprintln!("page {page}: {error}");
            broken += 1;
        }
        read += 1;
        text.push_str(String::from_utf8_lossy(&page_text).trim());
        text.push_str("\n\n");
    }
    text.truncate(text.floor_char_boundary(max_bytes));
    let head = serde_json::to_string(&Head { pages: pages.len(), read, broken }).map_err(|_| BROKEN)?;
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{head}").and_then(|()| out.write_all(text.trim_end().as_bytes()));
    written.and_then(|()| out.flush()).map_err(|_| BROKEN)
}
