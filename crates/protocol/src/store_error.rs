//! What a store answers when it did not do its part.

use crate::ids::SessionKey;

/// A write or read that did not happen.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Another owner has the lane: this one must let go at once.
    #[error("lane {0} belongs to another owner")]
    LeaseLost(SessionKey),
    /// What was named does not exist.
    #[error("not found: {0}")]
    NotFound(String),
    /// A limit of the store is reached and nothing was written; the words say which limit.
    #[error("{0}")]
    TooMuch(String),
    /// The disk is full, the file is damaged, the writer is gone.
    #[error("store: {0}")]
    Unavailable(String),
}
