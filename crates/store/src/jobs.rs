//! Jobs: the rules that the store enforces, its errors and its events.

use belay_protocol::{
    BootId, EventKind, JobChange, JobCreated, JobFilter, JobId, JobRecord, JobState, NO_SESSION, NewEvent, NewJob,
    SessionKey, StoreError, UnixMillis, WorkGrant, job_session,
};

use crate::limits::PAGE_MAX;

/// The rows of a list of jobs if the filter has the limit 0.
const JOBS_DEFAULT: u32 = 50;

/// The number of rows that a filter allows.
pub(crate) fn jobs_limit(filter: &JobFilter) -> u32 {
    if filter.limit == 0 { JOBS_DEFAULT } else { filter.limit.min(PAGE_MAX) }
}

/// The record of a new job.
pub(crate) fn pending(job: NewJob) -> JobRecord {
    JobRecord {
        job_id: job.id,
        title: job.title,
        task: job.task,
        state: JobState::Pending,
        detail: String::new(),
        plan: job.plan,
        runs_in: job.runs_in,
        budget: job.budget,
        grants: job.grants,
        session: job_session(job.id),
        creator: job.creator,
        channel: job.channel,
        asked_in: job.asked_in,
        reply_to: job.reply_to,
        parent: job.parent,
        routine_run: job.routine_run,
        attempt: 0,
        crashes: 0,
        run_id: None,
        result: None,
        created_at: job.at,
        started_at: None,
        changed_at: job.at,
        ended_at: None,
    }
}

/// The result if the limit of open jobs is reached.
pub(crate) fn too_many(cap: u32) -> JobCreated {
    JobCreated::TooMany(format!(
        "{cap} jobs are queued or running, which is the limit: wait until one ends, or cancel one"
    ))
}

/// The result if the limit of open jobs of the creator is reached.
pub(crate) fn too_many_each(cap: u32) -> JobCreated {
    JobCreated::TooMany(format!(
        "{cap} of your jobs are queued or running, which is the limit: wait until one ends, or cancel one"
    ))
}

/// The effect of a change on a job.
pub(crate) enum Step {
    /// The job changes to this record.
    To(Box<JobRecord>),
    /// The job has that state already.
    Same,
    /// The transition is not legal.
    No,
}

/// The effect of a change on this job, which this daemon owns.
pub(crate) fn step(job: &JobRecord, owner: Option<BootId>, change: &JobChange) -> Step {
    // A job that holds no slot has no owner. The repeated end of an attempt finds such a job.
    let refused = change
        .attempt
        .is_some_and(|attempt| attempt.number != job.attempt || job.state.holds_slot() && owner != Some(attempt.owner));
    if refused || change.to == JobState::InProgress || !job.state.may_become(change.to) {
        return Step::No;
    }
    if job.state == change.to {
        return Step::Same;
    }
    let ended_at = job.ended_at.or_else(|| change.to.is_over().then_some(change.at));
    Step::To(Box::new(JobRecord {
        state: change.to,
        detail: change.detail.clone(),
        result: change.result.clone().or_else(|| job.result.clone()),
        changed_at: change.at,
        ended_at,
        ..job.clone()
    }))
}

/// The record of a job at the start of its next attempt.
pub(crate) fn begun(job: &JobRecord, at: UnixMillis) -> JobRecord {
    JobRecord {
        state: JobState::InProgress,
        detail: String::new(),
        attempt: job.attempt.saturating_add(1),
        run_id: None,
        started_at: job.started_at.or(Some(at)),
        changed_at: at,
        ..job.clone()
    }
}

/// The event of a change of state.
pub(crate) fn changed(job: &JobRecord, from: Option<JobState>) -> NewEvent {
    let (to, attempt, why) = (job.state, job.attempt, job.detail.clone());
    let kind = EventKind::JobChanged { job: job.job_id, from, to, attempt, detail: why };
    NewEvent { at: job.changed_at, session: Some(job.session.clone()), run_id: None, kind }
}

/// The error for an unknown job.
pub(crate) fn no_job(id: JobId) -> StoreError {
    StoreError::NotFound(format!("job {id}"))
}

/// The event of a revoked grant. Work that was made without a session has none.
pub(crate) fn revoked(session: &SessionKey, work: String, grant: &WorkGrant, by: &str, at: UnixMillis) -> NewEvent {
    let kind = EventKind::GrantRevoked { work, grant: grant.to_string(), actor: by.to_owned() };
    let session = Some(session.clone()).filter(|session| session.as_str() != NO_SESSION);
    NewEvent { at, session, run_id: None, kind }
}
