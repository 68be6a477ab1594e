//! Ownership of the lane of a session.

use crate::ids::{BootId, SessionKey};

/// Proof of ownership of a lane. Every write for the lane carries it and is refused
/// ([`StoreError::LeaseLost`](crate::StoreError::LeaseLost)) if the stored row has another owner or epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The session.
    pub session: SessionKey,
    /// The boot that owns the lane.
    pub owner: BootId,
    /// Raised by one each time the lane is opened.
    pub epoch: u64,
}
