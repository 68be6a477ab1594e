//! Jobs: the ports [`JobReader`], [`JobStore`] and [`JobAttempts`].

use async_trait::async_trait;
use serde::Serialize;

use crate::approval::Asker;
use crate::ids::{BootId, ChannelId, IdPrefix, JobId, RoutineRunId, RunId, SessionKey};
use crate::job::{JobBudget, JobRecord, JobState, RunsIn};
use crate::outbound::Outbound;
use crate::progress::Doing;
use crate::route::ReplyRoute;
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// Reads jobs. Never blocks a writer.
#[async_trait]
pub trait JobReader: Send + Sync {
    /// The job of that id.
    async fn job(&self, id: JobId) -> Result<Option<JobRecord>, StoreError>;

    /// Jobs, newest first.
    async fn jobs(&self, filter: JobFilter) -> Result<Vec<JobRecord>, StoreError>;

    /// The progress of a job's run: its steps and its newest tool call, from the events of the run. `runs_in`: where the job runs.
    /// Counts the first [`PROGRESS_EVENTS_MAX`] events of the run.
    async fn progress(&self, run: RunId, runs_in: RunsIn) -> Result<Doing, StoreError>;

    /// How many there are that are not over. Cheap however many were.
    async fn numbers(&self) -> Result<JobNumbers, StoreError>;
}

/// Events of a run that [`JobReader::progress`] counts at most. 16 384: more than the steps that a run may take write.
pub const PROGRESS_EVENTS_MAX: u32 = 16_384;

/// Makes jobs and changes their state. Every write is committed before it answers; every transition is one of [`JobState::next`],
/// and writes the event `job_changed` into the job's session.
#[async_trait]
pub trait JobStore: Send + Sync {
    /// Commits a job as [`JobState::Pending`], unless its id is known or a limit is reached.
    async fn create(&self, job: NewJob, caps: JobCaps) -> Result<JobCreated, StoreError>;

    /// Changes a state, and tells whoever asked in the same commit. Not to [`JobState::InProgress`]: beginning counts places
    /// and attempts, and has functions of its own.
    async fn change(&self, change: JobChange) -> Result<JobChanged, StoreError>;
}

/// Begins attempts of jobs and keeps what a restart has to know of them. Every write is committed before it answers; every
/// transition is one of [`JobState::next`], and writes the event `job_changed` into the job's session.
#[async_trait]
pub trait JobAttempts: Send + Sync {
    /// Gives the oldest pending job a place, if one is free for its creator: [`JobState::InProgress`], attempt raised by one.
    /// One transaction, so that no burst passes a cap. `None`: no place, or nobody waits.
    async fn begin_next(&self, caps: JobCaps, at: UnixMillis) -> Result<Option<JobRecord>, StoreError>;

    /// Begins a stuck job again: [`JobState::InProgress`], attempt raised by one. It keeps its place.
    async fn begin_again(&self, job: JobId, at: UnixMillis) -> Result<JobChanged, StoreError>;

    /// Notes the run of an attempt.
    async fn note_run(&self, job: JobId, attempt: u32, run: RunId) -> Result<(), StoreError>;

    /// A step was finished since the last crash: it counts as none in a row.
    async fn note_progress(&self, job: JobId) -> Result<(), StoreError>;

    /// Notes that jobs at work are laid aside by an orderly end of the daemon: no crash of theirs.
    async fn park(&self) -> Result<(), StoreError>;

    /// The jobs that have a place, oldest first, for a start: each that was not parked has one crash more; parked or not, none
    /// is parked any more. Asked again by the same boot it only answers: no crash is counted twice.
    async fn take_up(&self, boot: BootId) -> Result<Vec<JobRecord>, StoreError>;
}

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
