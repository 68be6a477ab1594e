//! Jobs: work that outlives the turn that asked for it. Their states and their records.
//!
//! A job works in a session of its own ([`job_session`](crate::work::job_session)), by one run for each attempt. The run is
//! the truth about the work; the job's row is the truth about what is to be done with it.

use serde::{Deserialize, Serialize};

use crate::approval::Asker;
use crate::ids::{ChannelId, JobId, RoutineRunId, RunId, SessionKey};
use crate::route::ReplyRoute;
use crate::time::UnixMillis;

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Committed, and waits for a place.
    Pending,
    /// At work.
    InProgress,
    /// Its work is done.
    Completed,
    /// Its result was handed to whoever asked.
    Submitted,
    /// Whoever asked has taken the result.
    Accepted,
    /// It was not done, and nobody tries again.
    Failed,
    /// Nothing was heard of it for too long; it is about to be run again.
    Stuck,
    /// Somebody took it back.
    Cancelled,
}

impl JobState {
    /// Every state.
    pub const ALL: &'static [Self] = &[
        Self::Pending,
        Self::InProgress,
        Self::Completed,
        Self::Submitted,
        Self::Accepted,
        Self::Failed,
        Self::Stuck,
        Self::Cancelled,
    ];

    /// The word in the store and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Submitted => "submitted",
            Self::Accepted => "accepted",
            Self::Failed => "failed",
            Self::Stuck => "stuck",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|state| state.word() == word)
    }

    /// The states that may follow: the one table of legal transitions. A job that is completed again stays completed, so that
    /// whoever says it twice does no harm; every other state follows itself nowhere.
    pub fn next(self) -> &'static [Self] {
        match self {
            Self::Pending => &[Self::InProgress, Self::Failed, Self::Cancelled],
            Self::InProgress => &[Self::Completed, Self::Failed, Self::Stuck, Self::Cancelled],
            Self::Completed => &[Self::Completed, Self::Submitted, Self::Failed],
            Self::Submitted => &[Self::Accepted, Self::Failed],
            Self::Stuck => &[Self::InProgress, Self::Failed, Self::Cancelled],
            Self::Accepted | Self::Failed | Self::Cancelled => &[],
        }
    }

    /// Whether `to` may follow.
    pub fn may_become(self, to: Self) -> bool {
        self.next().contains(&to)
    }

    /// Whether no work is done on it any more: its run, should one be at work, ends.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Submitted | Self::Accepted | Self::Failed | Self::Cancelled)
    }

    /// Whether it takes one of the places for jobs at work.
    pub fn takes_place(self) -> bool {
        matches!(self, Self::InProgress | Self::Stuck)
    }
}

/// Where a job works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunsIn {
    /// In the daemon, with the tools of a conversation.
    #[default]
    Local,
    /// In a sandboxed worker.
    Worker,
}

/// What a job may use. 0: what the configuration says; more than that is never given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobBudget {
    /// Steps.
    pub max_steps: u32,
    /// Tokens read and generated, over all attempts.
    pub max_tokens: u64,
    /// Millionths of a US dollar, over all attempts.
    pub max_micro_usd: u64,
    /// Milliseconds at work, for one attempt.
    pub max_time_ms: u64,
}

impl JobBudget {
    /// The smaller of both, limit by limit.
    #[must_use]
    pub fn within(self, most: Self) -> Self {
        fn least<T: PartialOrd + Default>(a: T, b: T) -> T {
            let none = T::default();
            if a == none || (b != none && b < a) { b } else { a }
        }
        Self {
            max_steps: least(self.max_steps, most.max_steps),
            max_tokens: least(self.max_tokens, most.max_tokens),
            max_micro_usd: least(self.max_micro_usd, most.max_micro_usd),
            max_time_ms: least(self.max_time_ms, most.max_time_ms),
        }
    }
}

/// Longest task of a job, in bytes.
pub const JOB_TASK_MAX_BYTES: usize = 64 * 1024;

/// Longest title of a job, in characters.
pub const JOB_TITLE_MAX_CHARS: usize = 120;

/// A job as the outside sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobRecord {
    /// Its id.
    pub job_id: JobId,
    /// One line.
    pub title: String,
    /// What it is to do.
    pub task: String,
    /// Where it stands.
    pub state: JobState,
    /// Why it stands there, in words for people; empty while there is nothing to say.
    pub detail: String,
    /// Whether a plan is made first.
    pub plan: bool,
    /// Where it works.
    pub runs_in: RunsIn,
    /// What it may use.
    pub budget: JobBudget,
    /// Its own session.
    pub session: SessionKey,
    /// Who asked.
    pub creator: Asker,
    /// The channel that they spoke through.
    pub channel: ChannelId,
    /// The session that asked.
    pub asked_in: SessionKey,
    /// Where its result goes.
    #[serde(skip)]
    pub reply_to: Option<ReplyRoute>,
    /// The run that asked for it.
    pub parent: Option<RunId>,
    /// The routine run that it is the work of.
    pub routine_run: Option<RoutineRunId>,
    /// How often it was begun, repairs included.
    pub attempt: u32,
    /// How often the daemon died while it was at work, in a row.
    pub crashes: u32,
    /// The run of its newest attempt; `None` before the first.
    pub run_id: Option<RunId>,
    /// What it came to; `None` while there is nothing.
    pub result: Option<String>,
    /// When it was committed.
    pub created_at: UnixMillis,
    /// When it was first begun.
    pub started_at: Option<UnixMillis>,
    /// When its state changed last.
    pub changed_at: UnixMillis,
    /// When it was over.
    pub ended_at: Option<UnixMillis>,
}

/// What may be asked about jobs. Who asks, from where, and where the result goes, stand in the message that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobRequest {
    /// Make one.
    Create(JobOrder),
    /// Take one back: it is told to stop, and its end is not waited for.
    Cancel(JobId),
    /// Take the result: [`JobState::Submitted`] becomes [`JobState::Accepted`].
    Accept(JobId),
}

/// A job as it is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobOrder {
    /// Chosen by whoever asks, so that asking twice makes one job; absent: a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// One line; absent: the first line of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it is to do.
    pub task: String,
    /// Whether a plan is made first.
    #[serde(default)]
    pub plan: bool,
    /// Where it works.
    #[serde(default)]
    pub runs_in: RunsIn,
    /// What it may use.
    #[serde(default)]
    pub budget: JobBudget,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_moves_along_the_table_and_nowhere_else() {
        use JobState::*;
        let legal = [
            (Pending, InProgress),
            (Pending, Failed),
            (Pending, Cancelled),
            (InProgress, Completed),
            (InProgress, Failed),
            (InProgress, Stuck),
            (InProgress, Cancelled),
            (Completed, Completed),
            (Completed, Submitted),
            (Completed, Failed),
            (Submitted, Accepted),
            (Submitted, Failed),
            (Stuck, InProgress),
            (Stuck, Failed),
            (Stuck, Cancelled),
        ];
        for from in JobState::ALL {
            for to in JobState::ALL {
                assert_eq!(from.may_become(*to), legal.contains(&(*from, *to)), "{from:?} to {to:?}");
            }
            assert_eq!(JobState::from_word(from.word()), Some(*from));
        }
    }

    #[test]
    fn a_budget_is_the_smaller_one_limit_by_limit() {
        let asked = JobBudget { max_steps: 10, max_tokens: 0, max_micro_usd: 5, max_time_ms: 100 };
        let most = JobBudget { max_steps: 5, max_tokens: 7, max_micro_usd: 0, max_time_ms: 1000 };
        let both = JobBudget { max_steps: 5, max_tokens: 7, max_micro_usd: 5, max_time_ms: 100 };
        assert_eq!((asked.within(most), most.within(asked)), (both, both));
    }
}
