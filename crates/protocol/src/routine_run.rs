//! Routine runs of routines: what one is, from its claim to its end.
//!
//! A routine run is a claimed row before anything is done for it: of two daemons on one store, one has it.

use serde::{Deserialize, Serialize};

use crate::ids::{BootId, JobId, RoutineId, RoutineRunId, RunId};
use crate::outbound::Outbound;
#[cfg(doc)]
use crate::routine::{Guardrails, ROUTINE_TEXT_MAX_BYTES, Trigger};
use crate::run::RunUsage;
use crate::time::UnixMillis;

/// Longest detail of a routine run, in characters.
pub const ROUTINE_RUN_DETAIL_MAX_CHARS: usize = 200;

/// Where a routine run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoutineRunStatus {
    /// Claimed, and at work.
    Running,
    /// Done, with nothing to say.
    Ok,
    /// Done, with something to say.
    Attention,
    /// Not done.
    Failed,
    /// Its time passed while nobody could fire it.
    Missed,
    /// The heartbeat had a reason not to beat: its summary is the word of a [`SkipReason`](crate::heartbeat::SkipReason).
    Skipped,
}

impl RoutineRunStatus {
    /// The word in the store and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Ok => "ok",
            Self::Attention => "attention",
            Self::Failed => "failed",
            Self::Missed => "missed",
            Self::Skipped => "skipped",
        }
    }

    /// The status of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Running, Self::Ok, Self::Attention, Self::Failed, Self::Missed, Self::Skipped]
            .into_iter()
            .find(|status| status.word() == word)
    }
}

/// A routine run to claim.
#[derive(Clone, Debug, PartialEq)]
pub struct NewRoutineRun {
    /// Its id.
    pub id: RoutineRunId,
    /// The routine.
    pub routine_id: RoutineId,
    /// The routine's name.
    pub routine: String,
    /// What set it off: a [`Trigger::word`], or `manual`.
    pub by: &'static str,
    /// What makes a second delivery of the same cause recognisable, within the routine: the scheduled time in milliseconds, a
    /// webhook's delivery, a message's key.
    pub key: String,
    /// The key of an earlier routine run that is this one too, if it was claimed lately enough.
    pub echo: Option<Echo>,
    /// The scheduled time, where there is one.
    pub scheduled_at: Option<UnixMillis>,
    /// Whether guardrails of time are passed over: cooldown and content. For a routine run by hand.
    pub by_hand: bool,
    /// What it was set off with, in short: at most [`ROUTINE_RUN_DETAIL_MAX_CHARS`].
    pub detail: String,
    /// What it was set off with, for the model, as data of the outside; at most [`ROUTINE_TEXT_MAX_BYTES`].
    pub payload: Option<String>,
    /// blake3 of the content, in hex, for [`Guardrails::dedup_window_s`]; `None`: there is none.
    pub content: Option<String>,
    /// Scheduled times that are recorded as missed in the same commit, oldest first.
    pub missed: Vec<UnixMillis>,
    /// The routine's next scheduled time from here on, where it has a schedule.
    pub next_at: Option<UnixMillis>,
    /// The daemon that claims it.
    pub boot: BootId,
    /// When.
    pub at: UnixMillis,
}

/// An earlier routine run that is the same one: for a cause without a name, which is recognised by what it says and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Its key.
    pub key: String,
    /// Claimed at this date or later; before it, it was another one.
    pub since: UnixMillis,
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    /// This daemon has it, and its place.
    Claimed(Box<RoutineRunRecord>),
    /// It was claimed before: by this daemon or another.
    Known(Box<RoutineRunRecord>),
    /// A guardrail holds it back. A scheduled time is recorded as missed, with the guardrail as its summary; but where it is
    /// [`Held::Global`], which is nothing of the routine's, the time stays as it is and is claimed later.
    Held(Held),
    /// There is no such routine, or it cannot fire.
    Off(String),
}

/// The guardrail that holds a routine run back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// It fired a moment ago; so many milliseconds are left.
    Cooldown(u64),
    /// As many of it as may be are at work.
    Concurrent,
    /// As many of all as may be are at work.
    Global,
    /// The same content has fired it a moment ago.
    Content,
}

impl Held {
    /// The word in the store, in metrics and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cooldown(_) => "cooldown",
            Self::Concurrent => "max_concurrent",
            Self::Global => "global_concurrent",
            Self::Content => "same_content",
        }
    }
}

/// A routine run as the outside sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoutineRunRecord {
    /// Its id.
    pub routine_run_id: RoutineRunId,
    /// The routine. One that has its name by now may be another.
    pub routine_id: RoutineId,
    /// The routine's name.
    pub routine: String,
    /// The routine's revision when it was claimed.
    pub revision: u32,
    /// What set it off.
    pub trigger: String,
    /// What makes the cause recognisable.
    pub key: String,
    /// The scheduled time.
    pub scheduled_at: Option<UnixMillis>,
    /// What it was set off with, in short.
    pub detail: String,
    /// What it was set off with.
    #[serde(skip)]
    pub payload: Option<String>,
    /// Where it stands.
    pub status: RoutineRunStatus,
    /// What there is to say: its text, or why it failed, or what held it back.
    pub summary: Option<String>,
    /// The run that did it, for a lightweight one.
    pub run_id: Option<RunId>,
    /// The job that does it, for a full one.
    pub job_id: Option<JobId>,
    /// What it used.
    pub usage: RunUsage,
    /// What it cost, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// When it was claimed.
    pub claimed_at: UnixMillis,
    /// When it ended.
    pub ended_at: Option<UnixMillis>,
}

/// The end of a routine run.
#[derive(Clone, Debug)]
pub struct RoutineRunEnd {
    /// Which.
    pub routine_run: RoutineRunId,
    /// [`RoutineRunStatus::Ok`], [`RoutineRunStatus::Attention`], [`RoutineRunStatus::Failed`] or [`RoutineRunStatus::Skipped`].
    pub status: RoutineRunStatus,
    /// What there is to say.
    pub summary: Option<String>,
    /// What it used.
    pub usage: RunUsage,
    /// What it cost, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// Why its routine is switched off with this end, however often it has failed; `None`: by the number of failures alone.
    pub switch_off: Option<String>,
    /// Told in the same commit, if this is its first end.
    pub notice: Option<Outbound>,
    /// Told besides, in the same commit, if this end switches the routine off.
    pub disabled_notice: Option<Outbound>,
    /// When.
    pub at: UnixMillis,
}

/// What became of an end.
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// It has ended now; whether its routine was switched off by it.
    Now {
        /// The routine run.
        routine_run: Box<RoutineRunRecord>,
        /// Whether as many failures in a row as may be were reached, or [`RoutineRunEnd::switch_off`] said so of one that was on.
        disabled: bool,
    },
    /// It had ended before, or never was.
    Before,
}

/// Which routine runs.
#[derive(Clone, Debug, Default)]
pub struct RoutineRunFilter {
    /// Of routines of this name only, also of those that were deleted.
    pub routine: Option<String>,
    /// Of this routine only, and not of others that had its name before.
    pub routine_id: Option<RoutineId>,
    /// With this status only.
    pub status: Option<RoutineRunStatus>,
    /// At most so many, newest first; 0 means 50.
    pub limit: u32,
}
