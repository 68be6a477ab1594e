//! The heartbeat: a built-in routine that checks from time to time what the operator wants watched.
//!
//! It is claimed, stored and logged like every routine. In addition it can skip a beat without a model call, for a
//! reason that it reports.

use serde::Serialize;

use crate::route::ReplyRoute;
use crate::routine_run::RoutineRunRecord;
use crate::time::UnixMillis;

/// The name of the heartbeat's routine. No other routine can have it.
pub const HEARTBEAT: &str = "heartbeat";
/// The answer of the heartbeat's model when nothing needs attention.
pub const HEARTBEAT_OK: &str = "HEARTBEAT_OK";

/// The reason for a skipped beat. A skipped beat is no failure, and no model was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// It is in the quiet hours.
    QuietHours,
    /// Earlier beats failed, and the pause after that is not over.
    BackOff,
    /// Its report could reach nobody, and it has no tools to act with.
    NoRoute,
    /// The list of tasks is missing or empty.
    NothingToDo,
    /// Nobody has written for too long.
    Idle,
    /// A turn of the conversation that it writes to is running.
    AtWork,
    /// The budget of the day is spent.
    NoBudget,
}

impl SkipReason {
    /// Every reason.
    pub const ALL: &'static [Self] =
        &[Self::QuietHours, Self::BackOff, Self::NoRoute, Self::NothingToDo, Self::Idle, Self::AtWork, Self::NoBudget];

    /// The name in the store, in metrics and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::QuietHours => "quiet_hours",
            Self::BackOff => "back_off",
            Self::NoRoute => "no_route",
            Self::NothingToDo => "nothing_to_do",
            Self::Idle => "idle",
            Self::AtWork => "at_work",
            Self::NoBudget => "no_budget",
        }
    }

    /// The reason with this name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.word() == word)
    }
}

/// The state of the heartbeat, for operators.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeartbeatReport {
    /// Whether it is enabled.
    pub enabled: bool,
    /// Its schedule: `every 30m`, or a cron line.
    pub when: String,
    /// The time zone of its schedule and of its quiet hours.
    pub zone: String,
    /// The quiet hours, such as `22:00-07:00`; empty: none.
    pub quiet_hours: String,
    /// The path of the list of tasks in the workspace.
    pub file: String,
    /// The destination of its reports.
    pub deliver_to: Option<ReplyRoute>,
    /// The time of the next beat; `None`: none.
    pub next_at: Option<UnixMillis>,
    /// The reason for which a scheduled beat would be skipped now; `None`: it would not be skipped.
    pub would_skip: Option<SkipReason>,
    /// The same, as a sentence.
    pub would: String,
    /// Failures in a row.
    pub failures: u32,
    /// Its newest beats, newest first. The summary of a skipped beat is the name of the reason.
    pub last: Vec<RoutineRunRecord>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_word_of_its_own_which_is_also_that_on_the_wire() {
        for reason in SkipReason::ALL {
            assert_eq!(SkipReason::from_word(reason.word()), Some(*reason));
            assert_eq!(serde_json::to_value(reason).expect("a word"), reason.word());
        }
        assert_eq!(SkipReason::from_word("missed"), None);
    }
}
