//! Where a run stands.

use serde::{Deserialize, Serialize};

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Committed, not yet looked at.
    Accepted,
    /// Waits for its turn.
    Queued,
    /// At work.
    Running,
    /// Waits for a person.
    Paused,
    /// Ended well.
    Completed,
    /// Ended early because somebody, or a rule, said so.
    Stopped,
    /// Ended without doing its work.
    Failed,
}

impl RunStatus {
    /// The word on the wire and in the store.
    pub fn word(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Completed => "completed",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }

    /// The status of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Accepted, Self::Queued, Self::Running, Self::Paused, Self::Completed, Self::Stopped, Self::Failed]
            .into_iter()
            .find(|status| status.word() == word)
    }

    /// Whether nothing more will happen.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Completed | Self::Stopped | Self::Failed)
    }

    /// Whether nothing more will happen unless somebody says something.
    pub fn is_rest(self) -> bool {
        self.is_end() || self == Self::Paused
    }
}
