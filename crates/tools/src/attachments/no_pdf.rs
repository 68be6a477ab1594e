//! PDF files in a build without the feature `pdf`: each is named with the reason why it is not read.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use belay_exec::Processes;
use bytes::Bytes;

/// The command of the process that reads a PDF in other builds.
pub const COMMAND: &str = "read-pdf";

/// Longest wait for the turn of a file. 30 s, as in other builds.
pub(super) const TURN_LIMIT: Duration = Duration::from_secs(30);

/// What other builds know of a file that was read.
pub(super) struct Head {
    pub(super) pages: usize,
    pub(super) read: usize,
    pub(super) broken: usize,
    pub(super) fields: usize,
    pub(super) is_cut: bool,
}

/// Reads no file.
#[derive(Clone)]
pub(super) struct PdfReader;

impl PdfReader {
    pub(super) fn new(_program: PathBuf, _processes: Arc<Processes>) -> Self {
        Self
    }

    /// There is nothing to wait for.
    pub(super) async fn turn(&self) -> Option<()> {
        Some(())
    }

    /// # Errors
    /// Always: the reason in plain words.
    pub(super) async fn read(
        &self,
        _turn: (),
        _file: &Bytes,
        _pages: u32,
        _bytes: usize,
    ) -> Result<(Head, String), String> {
        Err("this build of Belay has no reader of PDF files (feature pdf)".to_owned())
    }
}

/// Refuses the command.
pub fn main(_args: impl IntoIterator<Item = OsString>) -> ExitCode {
    eprintln!("belay {COMMAND}: this build of Belay has no reader of PDF files (feature pdf)");
    ExitCode::from(69)
}
