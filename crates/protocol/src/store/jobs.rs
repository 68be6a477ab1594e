//! Jobs: the ports [`JobReader`], [`JobStore`] and [`JobAttempts`].

use async_trait::async_trait;
use serde::Serialize;

use crate::approval::Asker;
use crate::grant::WorkGrant;
use crate::ids::{BootId, ChannelId, IdPrefix, JobId, RoutineRunId, RunId, SessionKey};
use crate::job::{JobBudget, JobRecord, JobState, RunsIn};
use crate::outbound::{Outbound, SessionNotice};
use crate::progress::JobProgress;
use crate::route::ReplyRoute;
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// Reads jobs. Never blocks a writer.
#[async_trait]
pub trait JobReader: Send + Sync {
    /// The job with this id.
    async fn job(&self, id: JobId) -> Result<Option<JobRecord>, StoreError>;

    /// Jobs, newest first.
    ///
    /// # Errors
    /// [`StoreError::InvalidCursor`] if the job `filter.before` does not exist, or is not of `filter.creator`.
    async fn jobs(&self, filter: JobFilter) -> Result<Vec<JobRecord>, StoreError>;

    /// The progress of a job's run: its steps and its newest tool call, computed from the first [`PROGRESS_EVENTS_MAX`]
    /// events of the run. `runs_in`: the place where the job runs.
    async fn progress(&self, run: RunId, runs_in: RunsIn) -> Result<JobProgress, StoreError>;

    /// The numbers of open jobs. The cost does not depend on the number of ended jobs.
    async fn numbers(&self) -> Result<JobNumbers, StoreError>;
}

/// The maximum number of events for [`JobReader::progress`]. 16 384: more than a run within its limit of steps writes.
pub const PROGRESS_EVENTS_MAX: u32 = 16_384;

/// Creates jobs and changes their state. Every write is committed before it returns. Every transition follows
/// [`JobState::next`] and writes the event `job_changed` into the job's session.
#[async_trait]
pub trait JobStore: Send + Sync {
    /// Commits a job as [`JobState::Pending`], unless its id is known or a limit is reached.
    async fn create(&self, job: NewJob, caps: JobCaps) -> Result<JobCreated, StoreError>;

    /// Changes the state of a job and stores its notices in the same commit. Not to [`JobState::InProgress`]:
    /// [`JobAttempts`] begins attempts and counts slots.
    async fn change(&self, change: JobChange) -> Result<JobChanged, StoreError>;

    /// Revokes the grant with this number, from 1. [`JobChanged::Not`]: the job has no such grant. A repetition changes
    /// nothing.
    async fn revoke(&self, job: JobId, grant: usize, by: &str, at: UnixMillis) -> Result<JobChanged, StoreError>;
}

/// Begins attempts of jobs, and keeps what a restart has to know about them. Every write is committed before it
/// returns. Every transition follows [`JobState::next`] and writes the event `job_changed` into the job's session.
///
/// A job that holds a slot has an owner: the start of the daemon that works on it. It keeps the owner until it waits or
/// ends, until [`ClusterStore::release`](super::ClusterStore::release), or until another daemon takes it over by
/// [`reclaim`](Self::reclaim).
#[async_trait]
pub trait JobAttempts: Send + Sync {
    /// Begins the oldest pending job whose creator has a free slot: [`JobState::InProgress`], attempt raised by one. It
    /// is one transaction, so that concurrent calls cannot exceed a limit. `boot` becomes the owner. `None`: no slot is
    /// free, or no job is pending that `held` does not cover.
    async fn begin_next(
        &self,
        caps: JobCaps,
        held: HeldJobs,
        boot: BootId,
        at: UnixMillis,
    ) -> Result<Option<JobRecord>, StoreError>;

    /// Begins the next attempt of a stuck job: [`JobState::InProgress`], attempt raised by one. The job keeps its slot.
    /// [`JobChanged::Not`]: the job is not stuck, or `boot` does not own it.
    async fn begin_again(&self, job: JobId, boot: BootId, at: UnixMillis) -> Result<JobChanged, StoreError>;

    /// Records the run of an attempt.
    async fn note_run(&self, job: JobId, attempt: u32, run: RunId) -> Result<(), StoreError>;

    /// Records that a step was finished since the last crash: the number of crashes in a row becomes 0.
    async fn note_progress(&self, job: JobId) -> Result<(), StoreError>;

    /// Records that an orderly shutdown has deferred the running jobs that `boot` owns. [`reclaim`](Self::reclaim) counts
    /// no crash for them. `boot` stays their owner until it ends, so that it can still end them.
    async fn suspend(&self, boot: BootId) -> Result<(), StoreError>;

    /// Takes over the jobs that hold a slot and have no owner, or whose owner is neither alive nor `boot`. An owner is
    /// alive while `nodes` has its row without an end. Returns all jobs that `boot` owns now, oldest first.
    ///
    /// Each job that is taken over has one more crash, unless [`suspend`](Self::suspend) has deferred it, or its run
    /// waits for a person. Afterwards it is not deferred. No crash is counted for a job that `boot` owns already, so
    /// that a repeated call counts nothing. A job that another transaction is changing at this moment is left to the
    /// next call.
    async fn reclaim(&self, boot: BootId) -> Result<Vec<JobRecord>, StoreError>;
}

/// A job to create.
#[derive(Clone, Debug, PartialEq)]
pub struct NewJob {
    /// Its id. A repeated request with the same id creates one job.
    pub id: JobId,
    /// Its title: one line, at most [`JOB_TITLE_MAX_CHARS`](crate::job::JOB_TITLE_MAX_CHARS) characters.
    pub title: String,
    /// Its task, at most [`JOB_TASK_MAX_BYTES`](crate::job::JOB_TASK_MAX_BYTES).
    pub task: String,
    /// Whether the run makes a plan first.
    pub plan: bool,
    /// The place where it runs.
    pub runs_in: RunsIn,
    /// Its limits.
    pub budget: JobBudget,
    /// The calls that it may make without an approval.
    pub grants: Vec<WorkGrant>,
    /// Its creator, with the authority at that time.
    pub creator: Asker,
    /// The channel of the creator.
    pub channel: ChannelId,
    /// The session in which it was asked for.
    pub asked_in: SessionKey,
    /// The destination of its result; `None`: none, the creator reads the job.
    pub reply_to: Option<ReplyRoute>,
    /// The run that creates it, if any.
    pub parent: Option<RunId>,
    /// The routine run that it belongs to, if any.
    pub routine_run: Option<RoutineRunId>,
    /// The time.
    pub at: UnixMillis,
}

/// The limits of the numbers of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobCaps {
    /// The maximum number of running jobs; at least 1.
    pub at_work: u32,
    /// The maximum number of running jobs of one creator; at least 1.
    pub at_work_each: u32,
    /// The maximum number of open jobs of one creator.
    pub open_each: u32,
    /// The maximum number of open jobs.
    pub open: u32,
}

/// The pending jobs that freezes keep from beginning; by default none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldJobs {
    /// Their creators: the channel, or `None` for every channel, and the id within it.
    pub creators: Vec<(Option<ChannelId>, String)>,
    /// The names of the routines that created them.
    pub routines: Vec<String>,
}

impl HeldJobs {
    /// Whether it covers no job.
    pub fn is_empty(&self) -> bool {
        self.creators.is_empty() && self.routines.is_empty()
    }
}

/// The result of creating a job.
#[derive(Clone, Debug, PartialEq)]
pub enum JobCreated {
    /// The job is committed.
    New(Box<JobRecord>),
    /// A job with this id exists.
    Known(Box<JobRecord>),
    /// There are too many jobs; the text names the limit.
    TooMany(String),
}

/// A change of a job's state.
#[derive(Clone, Debug)]
pub struct JobChange {
    /// The job.
    pub job: JobId,
    /// The new state.
    pub to: JobState,
    /// The attempt that ends by this change; `None`: the change applies to any attempt, whichever daemon owns the job.
    pub attempt: Option<JobAttempt>,
    /// The reason, for people.
    pub detail: String,
    /// The result; `None`: keeps the stored one.
    pub result: Option<String>,
    /// The notice for the creator, which the same commit puts into the outbox.
    pub notice: Option<Outbound>,
    /// A notice in the conversation of the creator, in the same commit: a system message with untrusted content, and
    /// the event `notice`. The session is created if there is none.
    pub told_in: Option<SessionNotice>,
    /// The time.
    pub at: UnixMillis,
}

/// An attempt, as the daemon that works on it sees it. Its change is not legal if the job has come to another attempt,
/// or if the job holds a slot and another daemon owns it: that daemon repeats or follows the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobAttempt {
    /// The number of the attempt, from 1.
    pub number: u32,
    /// The start of the daemon that makes the change.
    pub owner: BootId,
}

/// The result of a change.
#[derive(Clone, Debug, PartialEq)]
pub enum JobChanged {
    /// The job has the new state.
    Now(Box<JobRecord>),
    /// The transition is not legal: the job is unchanged, and no notice is stored.
    Not(Box<JobRecord>),
    /// There is no such job.
    Unknown,
}

/// The filter of a list of jobs.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// Only those whose id has this prefix.
    pub id: Option<IdPrefix>,
    /// Only those in these states; empty: in any state.
    pub states: Vec<JobState>,
    /// Only those that were asked for in this session.
    pub asked_in: Option<SessionKey>,
    /// Only those of this creator: the id and the channel.
    pub creator: Option<(String, ChannelId)>,
    /// Only those that were created at this date or later.
    pub since: Option<UnixMillis>,
    /// Only those that were created before this date.
    pub until: Option<UnixMillis>,
    /// Only those that were created before this job, in the order of the list.
    pub before: Option<JobId>,
    /// The maximum count, newest first; 0 means 50.
    pub limit: u32,
}

/// The numbers of open jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobNumbers {
    /// Jobs that wait for a slot.
    pub pending: u64,
    /// Running jobs.
    pub in_progress: u64,
    /// Jobs that are about to be retried.
    pub stuck: u64,
    /// The time of creation of the oldest pending job; `None`: none is pending.
    pub oldest_pending_at: Option<UnixMillis>,
}
