//! Jobs: work that outlives the turn that started it. Their states and their records. The ports are in
//! [`store`](crate::store).
//!
//! A job works in a session of its own ([`job_session`](crate::work::job_session)), with one run for each attempt. The
//! run records the work; the row of the job records its state.

use serde::{Deserialize, Serialize};

use crate::approval::Asker;
use crate::grant::WorkGrant;
use crate::ids::{ChannelId, JobId, RoutineRunId, RunId, SessionKey};
use crate::route::ReplyRoute;
use crate::time::UnixMillis;

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It is committed and waits for a slot.
    Pending,
    /// An attempt is running.
    InProgress,
    /// The work is done.
    Completed,
    /// The result was delivered to the one who asked for the job.
    Submitted,
    /// The one who asked for the job has accepted the result.
    Accepted,
    /// It has failed and is not retried.
    Failed,
    /// It has shown no progress for too long. It is about to be retried.
    Stuck,
    /// It was cancelled.
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

    /// The name in the store and on the wire.
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

    /// The state with this name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|state| state.word() == word)
    }

    /// The states that may follow: the one table of legal transitions. A completed job may be completed again, so that
    /// a repeated report does no harm. No other state follows itself.
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

    /// Whether the work on it has ended. A run that is still working on it ends.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Submitted | Self::Accepted | Self::Failed | Self::Cancelled)
    }

    /// Whether it holds one of the slots for running jobs.
    pub fn holds_slot(self) -> bool {
        matches!(self, Self::InProgress | Self::Stuck)
    }
}

/// The place where a job runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunsIn {
    /// In the daemon, with the tools of a conversation.
    #[default]
    Local,
    /// In a sandboxed worker.
    Worker,
}

/// The limits of a job. 0: the limit of the configuration, which a job cannot exceed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct JobBudget {
    /// The maximum number of steps.
    pub max_steps: u32,
    /// The maximum input and output tokens over all attempts.
    pub max_tokens: u64,
    /// The maximum cost over all attempts, in millionths of a US dollar.
    pub max_micro_usd: u64,
    /// The maximum working time of one attempt, in milliseconds.
    pub max_time_ms: u64,
}

impl JobBudget {
    /// The lower one of both for each limit.
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

/// The maximum length of a job's task, in bytes.
pub const JOB_TASK_MAX_BYTES: usize = 64 * 1024;

/// The maximum length of a job's title, in characters.
pub const JOB_TITLE_MAX_CHARS: usize = 120;

/// A job, as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobRecord {
    /// Its id.
    pub job_id: JobId,
    /// Its title: one line.
    pub title: String,
    /// Its task.
    pub task: String,
    /// Its state.
    pub state: JobState,
    /// The reason for the state, for people; empty if there is none.
    pub detail: String,
    /// Whether the run makes a plan first.
    pub plan: bool,
    /// The place where it runs.
    pub runs_in: RunsIn,
    /// Its limits.
    pub budget: JobBudget,
    /// The calls that it may make without an approval, as its creator has granted them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<WorkGrant>,
    /// Its own session.
    pub session: SessionKey,
    /// Its creator.
    pub creator: Asker,
    /// The channel of the creator.
    pub channel: ChannelId,
    /// The session in which it was asked for.
    pub asked_in: SessionKey,
    /// The destination of its result.
    #[serde(skip)]
    pub reply_to: Option<ReplyRoute>,
    /// The run that has created it.
    pub parent: Option<RunId>,
    /// The routine run that it belongs to.
    pub routine_run: Option<RoutineRunId>,
    /// The number of attempts, including those after a failure.
    pub attempt: u32,
    /// The number of crashes of the daemon in a row while it was running.
    pub crashes: u32,
    /// The run of its newest attempt; `None` before the first.
    pub run_id: Option<RunId>,
    /// Its result; `None` while there is none.
    pub result: Option<String>,
    /// The time of its commit.
    pub created_at: UnixMillis,
    /// The time of its first attempt.
    pub started_at: Option<UnixMillis>,
    /// The time of its last change of state.
    pub changed_at: UnixMillis,
    /// The time of its end.
    pub ended_at: Option<UnixMillis>,
}

/// A request about jobs. The message of the request has the principal, the session and the destination of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobRequest {
    /// Create a job.
    Create(JobOrder),
    /// Cancel a job. The request does not wait for the end of the job's run.
    Cancel(JobId),
    /// Accept the result: [`JobState::Submitted`] becomes [`JobState::Accepted`].
    Accept(JobId),
    /// Revoke a grant: its number in [`JobRecord::grants`], from 1.
    Revoke(JobId, usize),
}

/// The description of a new job in a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobOrder {
    /// The id, chosen by the client so that a repeated request creates one job; absent: a new id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// The title, one line; absent: the first line of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its task.
    pub task: String,
    /// Whether the run makes a plan first.
    #[serde(default)]
    pub plan: bool,
    /// The place where it runs.
    #[serde(default)]
    pub runs_in: RunsIn,
    /// Its limits.
    #[serde(default)]
    pub budget: JobBudget,
    /// The calls that it may make without an approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<WorkGrant>,
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
