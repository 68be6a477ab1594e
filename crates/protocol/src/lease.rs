//! Owning the lane of a session.

use crate::ids::{BootId, SessionKey};

/// Proof of owning a lane. Every write on the lane's behalf carries it and is refused ([`StoreError::LeaseLost`](crate::StoreError::LeaseLost)) when
/// the row says another owner or epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The session.
    pub session: SessionKey,
    /// The boot that owns it.
    pub owner: BootId,
    /// Raised by one whenever the lane is opened.
    pub epoch: u64,
}
