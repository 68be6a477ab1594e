//! The heartbeat: a routine that is built in, and looks from time to time at what the operator wants watched.
//!
//! Its claims, its rows and its log are those of every routine; what is its own is that it can skip a beat for a reason that is
//! told, without a model being asked.

use serde::Serialize;

use crate::route::ReplyRoute;
use crate::routine_run::RoutineRunRecord;
use crate::time::UnixMillis;

/// The name of the heartbeat's routine; nobody else's routine can have it.
pub const HEARTBEAT: &str = "heartbeat";
/// What the heartbeat's model says when nothing needs attention.
pub const HEARTBEAT_OK: &str = "HEARTBEAT_OK";

/// Why a beat was skipped: no failure, and no model was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// It fell into the quiet hours.
    QuietHours,
    /// Beats failed lately, and the pause after that is not over.
    BackOff,
    /// What it has to say could reach nobody, and it has no tools to do anything with.
    NoRoute,
    /// The list of what is to be watched is missing, or has nothing in it.
    NothingToDo,
    /// Nobody has spoken for too long.
    Idle,
    /// A turn of the conversation that it writes to is at work.
    AtWork,
    /// The day's money is used up.
    NoBudget,
}

impl SkipReason {
    /// Every reason.
    pub const ALL: &'static [Self] =
        &[Self::QuietHours, Self::BackOff, Self::NoRoute, Self::NothingToDo, Self::Idle, Self::AtWork, Self::NoBudget];

    /// The word in the store, in metrics and on the wire.
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

    /// The reason of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.word() == word)
    }
}

/// How the heartbeat stands, for operators.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeartbeatReport {
    /// Whether it beats.
    pub enabled: bool,
    /// Its schedule: `every 30m`, or a cron line.
    pub when: String,
    /// The zone of its schedule and of its quiet hours.
    pub zone: String,
    /// `22:00-07:00`; empty: there are none.
    pub quiet_hours: String,
    /// The list of what is to be watched, within the workspace.
    pub file: String,
    /// Where it says what it has to say.
    pub deliver_to: Option<ReplyRoute>,
    /// When it beats next; `None`: not at all.
    pub next_at: Option<UnixMillis>,
    /// Why a scheduled beat would be skipped now; `None`: it would not be.
    pub would_skip: Option<SkipReason>,
    /// The same as a sentence.
    pub would: String,
    /// Failures in a row.
    pub failures: u32,
    /// Its newest beats, newest first: skipped ones have the word of the reason as their summary.
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
