//! Kept outputs: outputs of tools that are too long for a model, stored whole and read in parts.

mod name;

use async_trait::async_trait;

pub use self::name::{NoOutputName, OutputName};
use crate::ids::{CallId, RunId};
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// Stores kept outputs: in a directory of one daemon, or in the database that the nodes of a cluster share.
///
/// It has a limit for all outputs together, and removes the oldest ones beyond it. The nodes of a cluster share the limit.
#[async_trait]
pub trait OutputStore: Send + Sync {
    /// Begins to store an output.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: the output cannot be stored.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is stored.
    async fn begin(&self, run: RunId, call: &CallId) -> Result<Box<dyn OutputWriter>, StoreError>;

    /// The bytes of a finished output from an offset on, at most `most`; `None`: there is no such output.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: the output cannot be read now.
    async fn part(&self, name: &OutputName, from: u64, most: u64) -> Result<Option<OutputPart>, StoreError>;

    /// Removes the outputs of deleted runs, unless the deletion of the runs has removed them. Best effort: failures are
    /// logged.
    async fn forget(&self, runs: &[RunId]);

    /// Removes the finished outputs of runs that were accepted before a date, and returns their number.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: the outputs that were not removed are still there.
    ///
    /// # Cancel safety
    /// If the future is dropped, some old outputs may remain. The next call removes them.
    async fn forget_before(&self, date: UnixMillis) -> Result<u64, StoreError>;
}

/// An output that is being stored. If it is dropped before [`finish`](Self::finish), nothing is stored.
#[async_trait]
pub trait OutputWriter: Send {
    /// Appends bytes.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: the output cannot be stored. [`StoreError::NotFound`]: it was removed meanwhile.
    ///
    /// # Cancel safety
    /// If the future is dropped, the bytes may be missing: drop the writer then.
    async fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError>;

    /// Finishes the output and returns its name, which no other output has.
    ///
    /// # Errors
    /// As [`write`](Self::write); then nothing is stored.
    async fn finish(self: Box<Self>) -> Result<OutputName, StoreError>;
}

/// A part of a kept output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputPart {
    /// The bytes; empty if the offset is at the end or beyond.
    pub bytes: Vec<u8>,
    /// The size of the whole output in bytes.
    pub size: u64,
}
