//! Readiness of the store: the port [`StoreHealth`].

use async_trait::async_trait;

use crate::store_error::StoreError;

/// Tells whether the store works.
#[async_trait]
pub trait StoreHealth: Send + Sync {
    /// Checks that the store accepts a write now; for readiness probes.
    ///
    /// # Errors
    /// The store does not accept writes.
    async fn ping(&self) -> Result<(), StoreError>;

    /// Whether the last write that somebody waited for has failed because of the store. It neither reads nor writes anything.
    fn is_failing(&self) -> bool {
        false
    }

    /// Why the store accepts no write until the daemon has ended, in words for operators; `None`: nothing of that kind is
    /// known. It neither reads nor writes anything.
    fn trouble(&self) -> Option<String> {
        None
    }
}
