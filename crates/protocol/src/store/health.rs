//! Readiness of the store: the port [`StoreHealth`].

use async_trait::async_trait;

use crate::store_error::StoreError;

/// Tells whether the store works.
#[async_trait]
pub trait StoreHealth: Send + Sync {
    /// Whether the store can take a write now; for readiness.
    async fn ping(&self) -> Result<(), StoreError>;
}
