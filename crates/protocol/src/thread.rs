//! Threads: the conversations of a session.

use serde::{Deserialize, Serialize};

/// State of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadState {
    /// Nothing happens.
    Idle,
    /// A turn is at work.
    Processing,
    /// A turn waits for a person's yes or no.
    AwaitingApproval,
    /// The last turn was interrupted.
    Interrupted,
    /// Closed; `/new` has opened another.
    Completed,
}
