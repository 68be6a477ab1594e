//! An output while it is being kept, piece by piece.

use std::sync::Arc;

use belay_protocol::Kept;
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;

use super::{OutputName, Shelf, unkept};

/// An output that is being written. Dropped without [`finish`](Self::finish), it is removed.
#[derive(Debug)]
pub(crate) struct Writing {
    shelf: Arc<Shelf>,
    name: OutputName,
    file: Option<File>,
    written: u64,
    /// Bytes beyond the bound, which are not kept.
    lost: u64,
    finished: bool,
}

impl Writing {
    pub(super) fn new(shelf: Arc<Shelf>, name: OutputName) -> Self {
        Self { shelf, name, file: None, written: 0, lost: 0, finished: false }
    }

    pub(super) fn into_file(mut self, file: std::fs::File) -> Self {
        self.file = Some(File::from_std(file));
        self
    }

    pub(super) fn name(&self) -> &OutputName {
        &self.name
    }

    /// Adds a piece. What is beyond the bound of one output is counted instead.
    ///
    /// # Errors
    /// Plain words; what was written before is still there.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let room = self.shelf.max_bytes.saturating_sub(self.written);
        let taken = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        self.lost += (bytes.len() - taken) as u64;
        if let Some(file) = &mut self.file {
            file.write_all(&bytes[..taken]).await.map_err(|error| unkept(&error))?;
        }
        self.written += taken as u64;
        Ok(())
    }

    /// Bytes beyond the bound, which are not kept.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Ends it. An output that was too long ends with a line that says how much is missing.
    ///
    /// # Errors
    /// Plain words; nothing is kept then.
    pub(crate) async fn finish(mut self) -> Result<Kept, String> {
        if let Some(mut file) = self.file.take() {
            if self.lost > 0 {
                let note = format!("\n[cut here: {} more bytes were not kept]\n", self.lost);
                file.write_all(note.as_bytes()).await.map_err(|error| unkept(&error))?;
                self.written += note.len() as u64;
            }
            // Not synced: an output that a power cut takes away is told as gone, and costs nobody more than that.
            file.flush().await.map_err(|error| unkept(&error))?;
        }
        self.finished = true;
        self.shelf.settle(&self.name, self.written).await;
        Ok(Kept { name: self.name.to_string(), bytes: self.written })
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if !self.finished {
            self.shelf.lock().forget(&self.name);
            self.shelf.remove(&self.name);
        }
    }
}
