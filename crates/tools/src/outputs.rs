//! Kept outputs: outputs of tools that are too long for a model. They are stored whole, and read in parts.
//!
//! One daemon stores them as files (`directory`), a cluster in its database: both implement [`OutputStore`].
//!
//! **Does not know** the session of an output, only its run. The tool that reads outputs asks the store for the session
//! of that run.

mod directory;
mod read_output;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{CallId, Kept, OutputKeeper, OutputStore, OutputWriter, RunId, StoreError, UnixMillis};

use self::directory::OutputDirectory;
pub(crate) use self::read_output::ReadOutput;
use crate::config::OutputsConfig;
use crate::error::ToolsError;

/// Keeps outputs up to a size. A clone uses the same outputs.
#[derive(Clone)]
pub struct KeptOutputs {
    store: Arc<dyn OutputStore>,
    /// What may refuse an output, for the model.
    storage: &'static str,
    max_bytes: u64,
}

impl KeptOutputs {
    /// Opens the directory, creates it if it is missing, and counts its files. Called once, at the start.
    ///
    /// # Errors
    /// [`ToolsError::Outputs`]: the directory cannot be created or read.
    pub fn open(root: &Path, config: &OutputsConfig) -> Result<Self, ToolsError> {
        let directory = OutputDirectory::open(root, config.max_total_bytes);
        let directory = directory.map_err(|source| ToolsError::Outputs { path: root.to_owned(), source })?;
        Ok(Self { store: Arc::new(directory), storage: "disk", max_bytes: config.max_bytes })
    }

    /// Keeps outputs in the database that the nodes of a cluster share.
    pub fn in_database(store: Arc<dyn OutputStore>, config: &OutputsConfig) -> Self {
        Self { store, storage: "database", max_bytes: config.max_bytes }
    }

    /// Removes the outputs of runs that were accepted before a date, and returns their number.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: the outputs that were not removed are still there. Files that cannot be removed are
    /// logged instead.
    ///
    /// # Cancel safety
    /// If the future is dropped, some old outputs may remain. The next call removes them, or the next start counts them
    /// again.
    pub async fn forget_before(&self, date: UnixMillis) -> Result<u64, StoreError> {
        self.store.forget_before(date).await
    }

    /// Starts to store an output while the tool still produces it.
    ///
    /// # Errors
    /// A text in plain words.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is stored.
    pub(crate) async fn begin(&self, run: RunId, call: &CallId) -> Result<Writing, String> {
        let (storage, begun) = (self.storage, self.store.begin(run, call).await);
        let writer = begun.map_err(|error| storage_failure(&error, storage))?;
        Ok(Writing { writer, storage, max_bytes: self.max_bytes, written: 0, lost: 0 })
    }
}

impl fmt::Debug for KeptOutputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptOutputs").field("max_bytes", &self.max_bytes).finish_non_exhaustive()
    }
}

#[async_trait]
impl OutputKeeper for KeptOutputs {
    async fn keep(&self, run: RunId, call: &CallId, output: &str) -> Result<Kept, String> {
        let mut writing = self.begin(run, call).await?;
        writing.write(output.as_bytes()).await?;
        writing.finish().await
    }

    async fn forget(&self, runs: &[RunId]) {
        self.store.forget(runs).await;
    }
}

/// An output that is being written in pieces. If it is dropped without [`finish`](Self::finish), nothing is stored.
pub(crate) struct Writing {
    writer: Box<dyn OutputWriter>,
    storage: &'static str,
    max_bytes: u64,
    written: u64,
    /// Number of bytes beyond the size limit; they are not stored.
    lost: u64,
}

impl Writing {
    /// Appends a piece. Bytes beyond the size limit of one output are only counted.
    ///
    /// # Errors
    /// A text in plain words. The output is lost: drop it.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let remaining = self.max_bytes.saturating_sub(self.written);
        let taken = bytes.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
        self.lost += (bytes.len() - taken) as u64;
        self.append(&bytes[..taken]).await
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
        if self.lost > 0 {
            let note = format!("\n[cut here: {} more bytes were not kept]\n", self.lost);
            self.append(note.as_bytes()).await?;
        }
        let name = self.writer.finish().await.map_err(|error| storage_failure(&error, self.storage))?;
        Ok(Kept { name: name.to_string(), bytes: self.written })
    }

    async fn append(&mut self, bytes: &[u8]) -> Result<(), String> {
        if !bytes.is_empty() {
            self.writer.write(bytes).await.map_err(|error| storage_failure(&error, self.storage))?;
            self.written += bytes.len() as u64;
        }
        Ok(())
    }
}

impl fmt::Debug for Writing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writing").field("written", &self.written).field("lost", &self.lost).finish_non_exhaustive()
    }
}

/// The error text for the model. The cause is logged.
fn storage_failure(error: &StoreError, storage: &str) -> String {
    tracing::warn!(%error, "an output could not be kept");
    format!("the rest could not be kept, because the {storage} refused it")
}
