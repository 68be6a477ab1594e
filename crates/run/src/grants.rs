//! The port through which the effect gate reads the grants of the work that a run belongs to.

use async_trait::async_trait;
use belay_protocol::{StoreError, WorkGrant};

/// The grants of a piece of work.
#[async_trait]
pub trait WorkGrants: Send + Sync {
    /// The grants that are not revoked. Read for each call that would need an approval, so that a revocation takes
    /// effect at once.
    ///
    /// # Errors
    /// The store does not answer.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    async fn grants(&self) -> Result<Vec<WorkGrant>, StoreError>;
}
