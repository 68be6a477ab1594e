//! `remember`, `recall` and `forget`: notes over conversations, and the search of earlier conversations. `meaning`: the
//! optional search for notes by meaning.
//!
//! A run reads and writes only the notes of its owner, [`ToolContext::memory`](belay_protocol::ToolContext::memory). A
//! run that has read untrusted content neither replaces nor deletes a note that was written without it.

mod forget;
mod meaning;
mod recall;
mod remember;

use std::time::Duration;

use belay_protocol::{StoreError, ToolFailure};

pub(crate) use self::forget::Forget;
pub use self::meaning::Meaning;
pub(crate) use self::recall::Recall;
pub(crate) use self::remember::Remember;

/// Longest time for one call. The store commits in milliseconds unless the disk has a problem.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The failure for the model. The cause of an unavailable store is only logged.
fn unavailable(error: &StoreError, what: &str) -> ToolFailure {
    if let StoreError::TooMuch(why) = error {
        return ToolFailure::failed(format!("{what}: {why}."));
    }
    tracing::warn!(%error, "notes unavailable");
    ToolFailure::failed(format!("{what}: the store is not available just now."))
}

#[cfg(test)]
mod tests;
