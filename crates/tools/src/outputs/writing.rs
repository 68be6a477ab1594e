//! An output that is written in pieces while it is produced.

use std::sync::Arc;

use belay_protocol::Kept;
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;

use super::{OutputName, OutputStore, storage_failure};

/// An output that is being written. If it is dropped without [`finish`](Self::finish), its file is removed.
#[derive(Debug)]
pub(crate) struct Writing {
    store: Arc<OutputStore>,
    name: OutputName,
    file: Option<File>,
    written: u64,
    /// Number of bytes beyond the size limit; they are not stored.
    lost: u64,
    finished: bool,
}

impl Writing {
    pub(super) fn new(store: Arc<OutputStore>, name: OutputName) -> Self {
        Self { store, name, file: None, written: 0, lost: 0, finished: false }
    }

    pub(super) fn into_file(mut self, file: std::fs::File) -> Self {
        self.file = Some(File::from_std(file));
        self
    }

    pub(super) fn name(&self) -> &OutputName {
        &self.name
    }

    /// Appends a piece. Bytes beyond the size limit of one output are only counted.
    ///
    /// # Errors
    /// A text in plain words; earlier pieces are still stored.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let remaining = self.store.max_bytes.saturating_sub(self.written);
        let taken = bytes.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
        self.lost += (bytes.len() - taken) as u64;
        if let Some(file) = &mut self.file {
            file.write_all(&bytes[..taken]).await.map_err(|error| storage_failure(&error))?;
        }
        self.written += taken as u64;
        Ok(())
    }

    /// Number of bytes beyond the size limit; they are not stored.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Finishes the output. A truncated output ends with a line that says how many bytes are missing.
    ///
    /// # Errors
    /// A text in plain words; then nothing is stored.
    pub(crate) async fn finish(mut self) -> Result<Kept, String> {
        if let Some(mut file) = self.file.take() {
            if self.lost > 0 {
                let note = format!("\n[cut here: {} more bytes were not kept]\n", self.lost);
                file.write_all(note.as_bytes()).await.map_err(|error| storage_failure(&error))?;
                self.written += note.len() as u64;
            }
            // No fsync: if a power failure destroys the file, `read_output` reports it as missing, and nothing else is
            // lost.
            file.flush().await.map_err(|error| storage_failure(&error))?;
        }
        self.finished = true;
        self.store.settle(&self.name, self.written).await;
        Ok(Kept { name: self.name.to_string(), bytes: self.written })
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if !self.finished {
            self.store.lock().forget(&self.name);
            self.store.remove(&self.name);
        }
    }
}
