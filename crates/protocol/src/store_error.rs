//! The error of the ports of persistence.

use crate::cluster::LeasedWork;
use crate::ids::SessionKey;

/// A read or write that has failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Another owner has the lane. The caller must release it at once.
    #[error("lane {0} belongs to another owner")]
    LeaseLost(SessionKey),
    /// Another node has the work now, or nobody has. The caller must stop doing it at once.
    #[error("this node does not have {0} any more")]
    WorkLost(LeasedWork),
    /// The named row does not exist.
    #[error("not found: {0}")]
    NotFound(String),
    /// A limit of the store is reached, and nothing was written; the text names the limit.
    #[error("{0}")]
    TooMuch(String),
    /// The row that a list is to continue after does not exist any more; the text names it.
    #[error("{0}")]
    InvalidCursor(String),
    /// The store does not work: the disk is full, the file is damaged, or the writer has ended.
    #[error("store: {0}")]
    Unavailable(String),
}

impl StoreError {
    /// Whether another owner continues the work: a lane has moved, or another node has the work. Nobody has to do anything
    /// about it.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Self::LeaseLost(_) | Self::WorkLost(_))
    }
}
