//! Bounds of requests that cost much, over all clients.

use tokio::sync::Semaphore;

/// Most requests for embeddings that are answered at once. 4: each holds up to 2,048 texts and their vectors in memory, and the
/// server behind makes the vectors of one after the other.
pub(crate) const EMBEDDING_MAX: usize = 4;

/// One permit for each request that may be answered at once.
pub(crate) struct Slots {
    /// One permit: judging takes a processor for seconds.
    pub(crate) judging: Semaphore,
    /// One permit: a sum over many runs takes one of the store's few readers for long.
    pub(crate) summing: Semaphore,
    /// [`EMBEDDING_MAX`] permits.
    pub(crate) embedding: Semaphore,
}

impl Default for Slots {
    fn default() -> Self {
        Self { judging: Semaphore::new(1), summing: Semaphore::new(1), embedding: Semaphore::new(EMBEDDING_MAX) }
    }
}
