//! Threads: the conversations of a session.

use serde::{Deserialize, Serialize};

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ThreadState {
    /// No turn is running.
    Idle,
    /// A turn is running.
    Processing,
    /// A turn waits for an approval.
    AwaitingApproval,
    /// The last turn was interrupted.
    Interrupted,
    /// Closed; `/new` has opened another.
    Completed,
}
