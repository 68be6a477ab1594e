//! The text of a PDF, in a confined process of its own: `belay read-pdf`.
//!
//! PDF is complex and its readers have bugs, so the daemon never parses one. The process gets the file on standard
//! input and writes one line of JSON ([`Head`]) and the text. It restricts itself before it reads: no files, no network,
//! no other program, and limits of memory and processor time.
//!
//! Reading order: here (the daemon's side) → `process` (the text of a file) → `form` (the filled fields) → `walk` →
//! `section` → `value` → `field` → `source` (bounded access to objects) → `words` (encodings).

mod field;
mod form;
mod process;
mod section;
mod source;
#[cfg(test)]
mod tests;
mod value;
mod walk;
mod words;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use belay_exec::{Exit, Launch, Processes, Stdin};
use bytes::Bytes;
use tokio::io::AsyncReadExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::process::{BROKEN, ENCRYPTED, Head};
pub use self::process::{COMMAND, main};

/// Longest time for one file.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Longest wait for the turn of a file. 30 s, as long as one file may take.
pub(super) const TURN_LIMIT: Duration = Duration::from_secs(30);

/// Largest first line.
const HEAD_MAX_BYTES: usize = 256;

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

    /// The text of the first pages and the filled fields of the form.
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
