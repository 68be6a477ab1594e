//! The status of a run.

use serde::{Deserialize, Serialize};

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// It is committed, and not queued yet.
    Accepted,
    /// It is queued.
    Queued,
    /// It is running.
    Running,
    /// It waits for a person.
    Paused,
    /// It has ended with success.
    Completed,
    /// A person or a rule has ended it early.
    Stopped,
    /// It has ended without success.
    Failed,
}

impl RunStatus {
    /// All statuses.
    pub const ALL: &'static [Self] =
        &[Self::Accepted, Self::Queued, Self::Running, Self::Paused, Self::Completed, Self::Stopped, Self::Failed];

    /// The name on the wire and in the store.
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

    /// The status with this name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|status| status.word() == word)
    }

    /// Whether the run has ended.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Completed | Self::Stopped | Self::Failed)
    }

    /// Whether the run has ended or waits for a person.
    pub fn is_ended_or_paused(self) -> bool {
        self.is_end() || self == Self::Paused
    }
}
