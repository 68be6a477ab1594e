//! Routine runs: one execution of a routine, from its claim to its end.
//!
//! A routine run is a claimed row before any of its work starts. Of two daemons on one store, only one gets the claim.

use serde::{Deserialize, Serialize};

use crate::ids::{BootId, JobId, RoutineId, RoutineRunId, RunId};
use crate::outbound::{Outbound, SessionNotice};
#[cfg(doc)]
use crate::routine::{Guardrails, ROUTINE_TEXT_MAX_BYTES, Trigger};
use crate::run::RunUsage;
use crate::time::UnixMillis;

/// The maximum length of a routine run's detail, in characters.
pub const ROUTINE_RUN_DETAIL_MAX_CHARS: usize = 200;

/// The status of a routine run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RoutineRunStatus {
    /// It is claimed and running.
    Running,
    /// It has succeeded and has nothing to report.
    Ok,
    /// It has succeeded and has a report.
    Attention,
    /// It has failed.
    Failed,
    /// Its scheduled time passed without a routine run.
    Missed,
    /// The heartbeat skipped the beat. Its summary is the name of a [`SkipReason`](crate::heartbeat::SkipReason).
    Skipped,
}

impl RoutineRunStatus {
    /// The name in the store and on the wire.
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

    /// The status with this name.
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
    /// Its trigger: a [`Trigger::word`], or `manual`.
    pub by: &'static str,
    /// The key that recognises a redelivery of its cause, unique within the routine: the scheduled time in
    /// milliseconds, the id of a webhook's delivery, the key of a message.
    pub key: String,
    /// The key of an earlier routine run that counts as this one if it was claimed recently enough.
    pub echo: Option<Echo>,
    /// The scheduled time, if there is one.
    pub scheduled_at: Option<UnixMillis>,
    /// Whether it ignores the guardrails for cooldown and content. Set for a routine run by hand.
    pub by_hand: bool,
    /// A short form of its cause: at most [`ROUTINE_RUN_DETAIL_MAX_CHARS`].
    pub detail: String,
    /// The data of its cause, which the model reads as untrusted content; at most [`ROUTINE_TEXT_MAX_BYTES`].
    pub payload: Option<String>,
    /// blake3 of the content, in hex, for [`Guardrails::dedup_window_s`]; `None`: there is none.
    pub content: Option<String>,
    /// The scheduled times that the same commit records as missed, oldest first.
    pub missed: Vec<UnixMillis>,
    /// The routine's next scheduled time after this commit, if it has a schedule.
    pub next_at: Option<UnixMillis>,
    /// The daemon that claims it.
    pub boot: BootId,
    /// The time of the claim.
    pub at: UnixMillis,
}

/// An earlier routine run that counts as the same one. For a cause without an id, which is recognised by its content
/// and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Its key.
    pub key: String,
    /// It counts if it was claimed at this time or later.
    pub since: UnixMillis,
}

/// The result of a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    /// The routine run is claimed by this daemon and holds a slot.
    Claimed(Box<RoutineRunRecord>),
    /// It was claimed before, by this daemon or another.
    Known(Box<RoutineRunRecord>),
    /// A guardrail holds it back. A scheduled time is recorded as missed, with the guardrail as its summary. With
    /// [`Held::Global`], which is no guardrail of the routine, the time stays open and is claimed later.
    Held(Held),
    /// There is no such routine, or it is disabled. The text is the reason.
    Off(String),
}

/// The guardrail that holds a routine run back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The cooldown of the routine; the milliseconds that are left.
    Cooldown(u64),
    /// The limit of concurrent routine runs of the routine.
    Concurrent,
    /// The limit of concurrent routine runs of all routines.
    Global,
    /// Deduplication: the same content has started it recently.
    Content,
}

impl Held {
    /// The name in the store, in metrics and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cooldown(_) => "cooldown",
            Self::Concurrent => "max_concurrent",
            Self::Global => "global_concurrent",
            Self::Content => "same_content",
        }
    }
}

/// A routine run, as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoutineRunRecord {
    /// Its id.
    pub routine_run_id: RoutineRunId,
    /// The id of the routine. A newer routine may have the same name.
    pub routine_id: RoutineId,
    /// The routine's name.
    pub routine: String,
    /// The routine's revision when it was claimed.
    pub revision: u32,
    /// Its trigger.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["schedule", "event", "webhook", "system", "manual"])))]
    pub trigger: String,
    /// The key of its cause.
    pub key: String,
    /// The scheduled time.
    pub scheduled_at: Option<UnixMillis>,
    /// A short form of its cause.
    pub detail: String,
    /// The data of its cause.
    #[serde(skip)]
    pub payload: Option<String>,
    /// Its status.
    pub status: RoutineRunStatus,
    /// The report, the reason of a failure, or the guardrail that held it back.
    pub summary: Option<String>,
    /// The run of a lightweight routine.
    pub run_id: Option<RunId>,
    /// The job of a routine that creates one.
    pub job_id: Option<JobId>,
    /// Its usage.
    pub usage: RunUsage,
    /// Its cost, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// The time of the claim.
    pub claimed_at: UnixMillis,
    /// The time of the end.
    pub ended_at: Option<UnixMillis>,
}

/// The end of a routine run.
#[derive(Clone, Debug)]
pub struct RoutineRunEnd {
    /// The routine run.
    pub routine_run: RoutineRunId,
    /// The final status: [`RoutineRunStatus::Ok`], [`RoutineRunStatus::Attention`], [`RoutineRunStatus::Failed`] or
    /// [`RoutineRunStatus::Skipped`].
    pub status: RoutineRunStatus,
    /// The report or the reason of the failure.
    pub summary: Option<String>,
    /// Its usage.
    pub usage: RunUsage,
    /// Its cost, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// The reason for which this end disables the routine, regardless of the number of failures; `None`: the number of
    /// failures decides.
    pub switch_off: Option<String>,
    /// A notice that the same commit puts into the outbox, if this is the first end.
    pub notice: Option<Outbound>,
    /// A further notice in the same commit, if this end disables the routine.
    pub disabled_notice: Option<Outbound>,
    /// A notice in a conversation, in the same commit and if this is the first end: a system message with untrusted
    /// content, and the event `notice`. The session is created if there is none.
    pub told_in: Option<SessionNotice>,
    /// The time of the end.
    pub at: UnixMillis,
}

/// The result of ending a routine run.
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// The routine run has ended now.
    Now {
        /// The routine run.
        routine_run: Box<RoutineRunRecord>,
        /// Whether this end disabled the routine: the limit of failures was reached, or [`RoutineRunEnd::switch_off`]
        /// was set, and the routine was enabled.
        disabled: bool,
    },
    /// It had ended before, or does not exist.
    Before,
}

/// The filter of a list of routine runs.
#[derive(Clone, Debug, Default)]
pub struct RoutineRunFilter {
    /// Only those of routines with this name, including deleted ones.
    pub routine: Option<String>,
    /// Only those of these routines, without those of earlier routines with their names.
    pub routine_ids: Option<Vec<RoutineId>>,
    /// Only those with this status.
    pub status: Option<RoutineRunStatus>,
    /// Only those that were claimed at this date or later.
    pub since: Option<UnixMillis>,
    /// Only those that were claimed before this date.
    pub until: Option<UnixMillis>,
    /// Only those that were claimed before this routine run, in the order of the list.
    pub before: Option<RoutineRunId>,
    /// The maximum count, newest first; 0 means 50.
    pub limit: u32,
}
