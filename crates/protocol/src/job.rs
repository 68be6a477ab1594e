//! Jobs: work that outlives the turn that asked for it. Their states, their records, and the port that keeps them.
//!
//! A job works in a session of its own ([`job_session`](crate::work::job_session)), by one run for each attempt. The run is
//! the truth about the work; the job's row is the truth about what is to be done with it.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::approval::Asker;
use crate::ids::{BootId, ChannelId, IdPrefix, JobId, RoutineRunId, RunId, SessionKey};
use crate::outbound::Outbound;
use crate::route::ReplyRoute;
use crate::store_error::StoreError;
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

/// A job to commit.
#[derive(Clone, Debug, PartialEq)]
pub struct NewJob {
    /// Its id; whoever asks twice with the same id makes one job.
    pub id: JobId,
    /// One line, at most [`JOB_TITLE_MAX_CHARS`] characters.
    pub title: String,
    /// What it is to do, at most [`JOB_TASK_MAX_BYTES`].
    pub task: String,
    /// Whether a plan is made first.
    pub plan: bool,
    /// Where it works.
    pub runs_in: RunsIn,
    /// What it may use.
    pub budget: JobBudget,
    /// For whom it works: with their rights as they were then.
    pub creator: Asker,
    /// The channel that the creator spoke through.
    pub channel: ChannelId,
    /// The session that asked.
    pub asked_in: SessionKey,
    /// Where its result goes; `None`: nobody is told, whoever asked reads the job.
    pub reply_to: Option<ReplyRoute>,
    /// The run that asked for it, where one did.
    pub parent: Option<RunId>,
    /// The routine run that it is the work of, where it is.
    pub routine_run: Option<RoutineRunId>,
    /// When.
    pub at: UnixMillis,
}

/// How many jobs there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobCaps {
    /// Jobs at work; at least 1.
    pub at_work: u32,
    /// Jobs at work for one creator; at least 1.
    pub at_work_each: u32,
    /// Jobs of one creator that are not over.
    pub open_each: u32,
    /// Jobs that are not over, of all.
    pub open: u32,
}

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

/// What became of a job that was to be committed.
#[derive(Clone, Debug, PartialEq)]
pub enum JobCreated {
    /// It is committed.
    New(Box<JobRecord>),
    /// There is one of that id.
    Known(Box<JobRecord>),
    /// There are too many; the words say which limit.
    TooMany(String),
}

/// A change of a job's state.
#[derive(Clone, Debug)]
pub struct JobChange {
    /// Which job.
    pub job: JobId,
    /// What it becomes.
    pub to: JobState,
    /// Only if it is this attempt's; `None`: whichever attempt it is at.
    pub attempt: Option<u32>,
    /// Why, in words for people.
    pub detail: String,
    /// What it came to; `None` leaves what there is.
    pub result: Option<String>,
    /// Told to whoever asked, in the same commit.
    pub notice: Option<Outbound>,
    /// A notice in the conversation that asked, in the same commit: a system message with untrusted content, and the event
    /// `notice`. The session is made where there is none.
    pub told_in: Option<SessionNotice>,
    /// When.
    pub at: UnixMillis,
}

/// A notice in a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionNotice {
    /// The session.
    pub session: SessionKey,
    /// What the model reads, and whoever reads the conversation, behind the [opening](crate::Message::notice) of a notice.
    pub text: String,
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq)]
pub enum JobChanged {
    /// It is as it should be now.
    Now(Box<JobRecord>),
    /// It may not become that: it stays as it is, and nobody is told.
    Not(Box<JobRecord>),
    /// There is no such job.
    Unknown,
}

/// Which jobs.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// Whose id begins so.
    pub id: Option<IdPrefix>,
    /// In these states only; empty: in any.
    pub states: Vec<JobState>,
    /// Asked for in this session only.
    pub asked_in: Option<SessionKey>,
    /// Only those of this creator: their id, and the channel that they spoke through.
    pub creator: Option<(String, ChannelId)>,
    /// At most so many, newest first; 0 means 50.
    pub limit: u32,
}

/// How many jobs there are that are not over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JobNumbers {
    /// Those that wait for a place.
    pub pending: u64,
    /// Those at work.
    pub in_progress: u64,
    /// Those that are about to be begun again.
    pub stuck: u64,
    /// When the one that has waited longest was made; `None`: none waits.
    pub oldest_pending_at: Option<UnixMillis>,
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

/// Keeps jobs. Every write is committed before it answers; every transition is one of [`JobState::next`], and writes the event
/// `job_changed` into the job's session.
#[async_trait]
pub trait JobStore: Send + Sync {
    /// Commits a job as [`JobState::Pending`], unless its id is known or a limit is reached.
    async fn create(&self, job: NewJob, caps: JobCaps) -> Result<JobCreated, StoreError>;

    /// Gives the oldest pending job a place, if one is free for its creator: [`JobState::InProgress`], attempt raised by one.
    /// One transaction, so that no burst passes a cap. `None`: no place, or nobody waits.
    async fn begin_next(&self, caps: JobCaps, at: UnixMillis) -> Result<Option<JobRecord>, StoreError>;

    /// Begins a stuck job again: [`JobState::InProgress`], attempt raised by one. It keeps its place.
    async fn begin_again(&self, job: JobId, at: UnixMillis) -> Result<JobChanged, StoreError>;

    /// Notes the run of an attempt.
    async fn note_run(&self, job: JobId, attempt: u32, run: RunId) -> Result<(), StoreError>;

    /// Changes a state, and tells whoever asked in the same commit. Not to [`JobState::InProgress`]: beginning counts places
    /// and attempts, and has functions of its own.
    async fn change(&self, change: JobChange) -> Result<JobChanged, StoreError>;

    /// Notes that jobs at work are laid aside by an orderly end of the daemon: no crash of theirs.
    async fn park(&self, at: UnixMillis) -> Result<(), StoreError>;

    /// The jobs that have a place, oldest first, for a start: each that was not parked has one crash more; parked or not, none
    /// is parked any more. Asked again by the same boot it only answers: no crash is counted twice.
    async fn take_up(&self, boot: BootId, at: UnixMillis) -> Result<Vec<JobRecord>, StoreError>;

    /// A step was finished since the last crash: it counts as none in a row.
    async fn note_progress(&self, job: JobId) -> Result<(), StoreError>;

    /// The job of that id.
    async fn job(&self, id: JobId) -> Result<Option<JobRecord>, StoreError>;

    /// Jobs, newest first.
    async fn jobs(&self, filter: JobFilter) -> Result<Vec<JobRecord>, StoreError>;

    /// How many there are that are not over. Cheap however many were.
    async fn numbers(&self) -> Result<JobNumbers, StoreError>;
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
