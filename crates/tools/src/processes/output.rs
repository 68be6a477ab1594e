//! What a process has printed: a file of bounded size with the newest bytes.
//!
//! The file is a ring. It has no name, so that nothing is left of it after a crash. A reader sees plain offsets, counted
//! from the first byte that the process has printed, and learns which of them are gone.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use tokio::sync::watch;
use uuid::Uuid;

/// Most bytes of one [`Output::append`]. The ring has that many bytes more than it shows, so that an append never changes
/// bytes that a reader may see.
pub(super) const MAX_PIECE_BYTES: usize = 64 * 1024;

/// The output of one process.
#[derive(Debug)]
pub(super) struct Output {
    file: File,
    kept_bytes: u64,
    /// The number of printed bytes.
    printed: watch::Sender<u64>,
}

/// A part of an output.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The offset of its first byte: that which was asked for, or the first that is kept.
    pub(super) from: u64,
    pub(super) bytes: Vec<u8>,
    /// The number of printed bytes.
    pub(super) printed: u64,
}

impl Part {
    /// The offset behind it.
    pub(super) fn next(&self) -> u64 {
        self.from + self.bytes.len() as u64
    }
}

impl Output {
    /// Creates an empty output in this directory. Blocks.
    ///
    /// # Errors
    /// The file cannot be created.
    pub(super) fn create(directory: &Path, kept_bytes: u64) -> io::Result<Self> {
        let path = directory.join(format!("background-{}", Uuid::new_v4().simple()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(Self { file, kept_bytes, printed: watch::Sender::new(0) })
    }

    /// Appends a piece of at most [`MAX_PIECE_BYTES`], and returns the number of printed bytes. One caller at a time.
    /// Blocks.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn append(&self, piece: &[u8]) -> io::Result<u64> {
        let start = *self.printed.borrow();
        let end = start + piece.len() as u64;
        for (at, within) in self.places(start..end) {
            self.file.write_all_at(&piece[within], at)?;
        }
        self.printed.send_replace(end);
        Ok(end)
    }

    /// Reads at most `most` bytes from an offset on, or from the first kept byte if the offset is before it. An offset
    /// behind the last byte gives none. Blocks.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn part(&self, from: u64, most: usize) -> io::Result<Part> {
        let printed = *self.printed.borrow();
        let from = from.max(self.first_of(printed));
        let end = printed.min(from.saturating_add(most as u64)).max(from);
        let mut bytes = vec![0; usize::try_from(end - from).unwrap_or(0)];
        for (at, within) in self.places(from..end) {
            self.file.read_exact_at(&mut bytes[within], at)?;
        }
        // Pieces that were appended meanwhile may have replaced the first of these bytes.
        let gone = self.first_of(*self.printed.borrow()).saturating_sub(from);
        let gone = usize::try_from(gone).unwrap_or(usize::MAX).min(bytes.len());
        bytes.drain(..gone);
        Ok(Part { from: from + gone as u64, bytes, printed })
    }

    /// The number of printed bytes.
    pub(super) fn printed(&self) -> u64 {
        *self.printed.borrow()
    }

    /// Follows the number of printed bytes.
    pub(super) fn follow(&self) -> watch::Receiver<u64> {
        self.printed.subscribe()
    }

    fn first_of(&self, printed: u64) -> u64 {
        printed.saturating_sub(self.kept_bytes)
    }

    /// Where these bytes are: for each run of them in the file, its place, and the indices within the range.
    fn places(&self, range: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> + use<> {
        let size = self.kept_bytes + MAX_PIECE_BYTES as u64;
        let mut at = range.start;
        std::iter::from_fn(move || {
            let place = at % size;
            let end = range.end.min(at + (size - place));
            // A range is at most as long as the file, which fits into memory.
            let index = |offset: u64| usize::try_from(offset - range.start).unwrap_or(usize::MAX);
            let within = index(at)..index(end);
            at = end;
            (!within.is_empty()).then_some((place, within))
        })
    }
}
