//! Supervises one running job from attempt to attempt to its end, and settles its row.
//!
//! Each step can be repeated. An attempt is a message whose idempotency key consists of the job and the attempt, so
//! that repeated sending makes one run. A change that settles a row is legal only once, and the same commit stores the
//! notice to the requester.

use std::sync::Arc;

use belay_crash_point::crash_point;
use belay_protocol::{
    Asker, Body, Control, GoalMessage, IdempotencyKey, Inbound, JobAttempt, JobChange, JobChanged, JobId, JobRecord,
    JobState, NO_SESSION, Outbound, Purpose, QueueMode, RoutineRunRecord, RunId, RunOptions, RunRecord, RunWatch,
    RunsIn, SessionKey, SessionNotice, StopTarget, Work, WorkSource,
};

use super::outcome::AttemptOutcome;
use super::service::JobService;
use super::text;
use crate::submitter::Submitted;
use belay_run::metrics;
use belay_run::restart::{Restarts, caught};
use belay_run::retry::{STORE, until_stored};
use belay_run::rights::{self, Revoked};

/// Supervises a job, and reports when no more work is done on it here. A panic fails the current attempt and releases
/// its slot.
pub(super) async fn supervise(service: Arc<JobService>, job: JobRecord) {
    supervise_attempts(&service, job).await;
    service.bell.work_ended(); // each way out of the attempts leads here, also that of a job cancelled between two of them
}

async fn supervise_attempts(service: &JobService, job: JobRecord) {
    let (id, mut next, mut restarts) = (job.job_id, Some(job), Restarts::default());
    loop {
        let done = match next.take() {
            Some(job) => caught(|| run_attempts(service, job)).await.map(|()| None),
            None => caught(|| recover(service, id)).await,
        };
        match done {
            Some(Some(again)) => next = Some(again),
            Some(None) => return,
            // The next pass ends the attempt. After a panic in `recover` it tries that again.
            None => {
                tracing::error!(job = %id, "the supervisor of a job crashed; its attempt is ended");
                if !restarts.back_off("job_attempt", &service.draining).await {
                    return; // the next start counts a crash
                }
            }
        }
    }
}

/// Ends the attempt of a job whose supervisor panicked, with all its processes, and settles the row. Returns the job
/// when another attempt should begin.
async fn recover(service: &JobService, id: JobId) -> Option<JobRecord> {
    let job = until_stored(&service.draining, || service.jobs.job(id)).await??;
    if !job.state.holds_slot() {
        service.bell.ring(); // the row is settled, and a slot may be free
        if job.state == JobState::Completed {
            submit(service, &job).await;
        }
        return None;
    }
    let key = key_of(&job);
    let run = until_stored(&service.draining, || service.inputs.find(&key)).await?.map(|known| known.run_id);
    if let Some(run) = run {
        end_run(service, &job, run).await?;
        service.processes.end(run).await; // the row may not know of this run
    }
    if job.state == JobState::Stuck {
        return Some(job);
    }
    settle(service, &job, AttemptOutcome::Stuck("an internal error of Belay ended it; see the log".to_owned()), run)
        .await
}

/// Stops the session of a job that has ended. The stop may come too late or be lost: the run also sees at its next step
/// that the job is over.
pub(super) async fn stop(service: &JobService, job: &JobRecord) {
    let stop = Body::Control(Control::Stop(StopTarget::Session(job.session.clone())));
    service.submitter.send(message(job, &job.creator, stop)).await;
}

/// Stops the run of an attempt and waits until it has ended. Returns `None` when the daemon ends first.
async fn end_run(service: &JobService, job: &JobRecord, run: RunId) -> Option<()> {
    let mut pauses = STORE.pauses();
    while !service.draining.is_cancelled() {
        match until_stored(&service.draining, || service.runs.run(run)).await? {
            Some(record) if !record.status.is_end() => {}
            _ended_or_gone => return Some(()),
        }
        let stop = Body::Control(Control::Stop(StopTarget::Run(run)));
        service.submitter.send(message(job, &job.creator, stop)).await;
        pauses.wait(&service.draining).await;
    }
    None
}

/// Runs a job attempt by attempt until it is over or the daemon ends.
async fn run_attempts(service: &JobService, mut job: JobRecord) {
    loop {
        if job.state == JobState::Stuck {
            // All processes of the last attempt end before the next one begins.
            if let Some(run) = job.run_id {
                service.processes.end(run).await;
            }
            match until_stored(&service.draining, || {
                service.attempts.begin_again(job.job_id, service.boot, service.clock.now())
            })
            .await
            {
                Some(JobChanged::Now(again)) => {
                    metrics::count_job_state(again.state);
                    job = *again;
                }
                Some(JobChanged::Not(_) | JobChanged::Unknown) | None => return,
            }
        }
        if job.state != JobState::InProgress {
            return; // cancelled meanwhile
        }
        crash_point!("job.claimed");
        tracing::info!(attempt = job.attempt, "a job is running");
        let (outcome, run) = match rights::of_job(&service.access, &job) {
            Ok(asker) => match attempt(service, &job, &asker).await {
                Attempt::Ended(run) => (AttemptOutcome::of(&run), Some(run.run_id)),
                Attempt::Refused(why) => (AttemptOutcome::failed(why), None),
                Attempt::LaidAside => return,
            },
            // A run that a restart has resumed makes the same check and ends.
            Err(Revoked(why)) => (AttemptOutcome::failed(why), job.run_id),
        };
        match settle(service, &job, outcome, run).await {
            Some(stuck) => job = stuck,
            None => return,
        }
    }
}

/// How waiting for an attempt ended.
enum Attempt {
    /// Its run has ended.
    Ended(Arc<RunRecord>),
    /// The agent refused the message, with this detail; there is no run.
    Refused(String),
    /// The daemon ends; the next start continues.
    LaidAside,
}

/// Sends the message that is the attempt, and waits for the end of its run. A repetition finds the same run.
async fn attempt(service: &JobService, job: &JobRecord, asker: &Asker) -> Attempt {
    let Some(routine) = routine_of(service, job).await else { return Attempt::LaidAside };
    let (message, mut pauses) = (attempt_message(job, asker, routine), STORE.pauses());
    while let Some(submitted) = service.submitter.submit(&message, &service.draining).await {
        let Submitted { run, watch } = match submitted {
            Ok(submitted) => submitted,
            Err(why) => return Attempt::Refused(why),
        };
        crash_point!("job.submitted");
        until_stored(&service.draining, || service.attempts.note_run(job.job_id, job.attempt, run)).await;
        if let Some(record) = end_of(service, run, watch).await {
            return Attempt::Ended(record);
        }
        pauses.wait(&service.draining).await;
    }
    Attempt::LaidAside
}

/// The routine that a job belongs to.
struct JobRoutine {
    name: String,
    /// The session in which it was created; `None`: it was deleted meanwhile.
    made_in: Option<SessionKey>,
}

/// The routine that a job belongs to, if any. Returns `None` when the daemon ends first.
async fn routine_of(service: &JobService, job: &JobRecord) -> Option<Option<JobRoutine>> {
    let Some(id) = job.routine_run else { return Some(None) };
    let routine_run = until_stored(&service.draining, || service.routines.routine_run(id)).await?;
    let Some(RoutineRunRecord { routine: name, routine_id, .. }) = routine_run else { return Some(None) };
    let routine = until_stored(&service.draining, || service.routines.routine(&name)).await?;
    let made_in = routine.filter(|routine| routine.routine_id == routine_id).map(|routine| routine.made_in);
    Some(Some(JobRoutine { name, made_in }))
}

/// Waits for the end of a run. Returns `None` when the run is no longer live and has not ended.
async fn end_of(service: &JobService, run: RunId, watch: Option<RunWatch>) -> Option<Arc<RunRecord>> {
    if let Some(mut watch) = watch
        && let Some(record) = watch.ended().await
    {
        return Some(record);
    }
    let stored = until_stored(&service.draining, || service.runs.run(run)).await.flatten();
    stored.filter(|record| record.status.is_end()).map(Arc::new)
}

/// A message to a job's session in the name of its creator, without a route for a reply: the notice is written when
/// the row is settled.
pub(super) fn message(job: &JobRecord, asker: &Asker, body: Body) -> Inbound {
    Inbound {
        work: Work::Job { job: job.job_id, attempt: None },
        source: Some(Arc::new(WorkSource {
            channel: job.channel.clone(),
            routine: None,
            asked_in: job.asked_in.clone(),
        })),
        options: RunOptions { queue: Some(QueueMode::Steer), ..RunOptions::default() },
        ..Inbound::new(Purpose::Job.channel(), job.session.clone(), rights::principal(asker), body)
    }
}

/// The message that is the current attempt.
fn attempt_message(job: &JobRecord, asker: &Asker, routine: Option<JobRoutine>) -> Inbound {
    let asked_in = routine.as_ref().and_then(|routine| routine.made_in.clone()).unwrap_or_else(|| job.asked_in.clone());
    let routine = routine.map(|routine| routine.name);
    // A worker has no tools that submit outputs.
    let goal = GoalMessage::request(&job.task).filter(|_| job.runs_in == RunsIn::Local);
    Inbound {
        key: Some(key_of(job)),
        work: Work::Job { job: job.job_id, attempt: Some(job.attempt) },
        source: Some(Arc::new(WorkSource { channel: job.channel.clone(), routine, asked_in })),
        outputs: goal.map(|goal| goal.outputs()).unwrap_or_default(),
        ..message(job, asker, Body::Text(text::attempt(job)))
    }
}

/// The idempotency key of the current attempt.
pub(super) fn key_of(job: &JobRecord) -> IdempotencyKey {
    IdempotencyKey {
        channel: Purpose::Job.channel(),
        account: job.job_id.to_string().into(),
        message_id: job.attempt.to_string().into(),
    }
}

/// Settles the row of a job whose attempt has ended. Returns the job when it is stuck and another attempt should
/// begin.
async fn settle(
    service: &JobService,
    job: &JobRecord,
    outcome: AttemptOutcome,
    run: Option<RunId>,
) -> Option<JobRecord> {
    let outcome = match outcome {
        AttemptOutcome::Stuck(why) if job.attempt >= service.config.max_attempts => {
            AttemptOutcome::failed(format!("{why}, in its {} and last attempt", ordinal(job.attempt)))
        }
        outcome => outcome,
    };
    let change = change_to(service, job, &outcome, run);
    crash_point!("job.before-settlement");
    let changed = until_stored(&service.draining, || service.job_store.change(change.clone())).await?;
    service.bell.ring(); // a slot may be free
    crash_point!("job.settled");
    let JobChanged::Now(job) = changed else { return None };
    if let Some(SessionNotice { session, .. }) = change.told_in {
        service.submitter.refresh(session).await;
    }
    metrics::count_job_state(job.state);
    tracing::info!(state = job.state.word(), detail = job.detail, "a job has come into another state");
    match job.state {
        JobState::Completed => {
            submit(service, &job).await;
            None
        }
        JobState::Stuck => Some(*job),
        _ => None,
    }
}

fn ordinal(attempt: u32) -> String {
    match attempt {
        1 => "first".to_owned(),
        2 => "second".to_owned(),
        3 => "third".to_owned(),
        n => format!("{n}th"),
    }
}

/// The change of the row for this outcome, with the notices to the requester.
pub(super) fn change_to(
    service: &JobService,
    job: &JobRecord,
    outcome: &AttemptOutcome,
    run: Option<RunId>,
) -> JobChange {
    let (to, why, result) = match outcome {
        AttemptOutcome::Done(result) => (JobState::Completed, String::new(), Some(result.clone())),
        AttemptOutcome::Stopped(why) => (JobState::Cancelled, why.clone(), None),
        AttemptOutcome::Stuck(why) => (JobState::Stuck, why.clone(), None),
        AttemptOutcome::Failed { why, partial } => (JobState::Failed, why.clone(), partial.clone()),
    };
    let told = job.reply_to.clone().filter(|route| to != JobState::Stuck && rights::may_tell(&service.access, route));
    let notice = told.map(|route| Outbound::new(run, route, text::notice(job, outcome)));
    // The routine run notifies people about its own job. A program without a session reads the job instead.
    let in_conversation = job.routine_run.is_none() && job.asked_in.as_str() != NO_SESSION;
    let told_in = (to != JobState::Stuck && in_conversation)
        .then(|| SessionNotice { session: job.asked_in.clone(), text: text::notice_in_session(job, outcome) });
    JobChange {
        job: job.job_id,
        to,
        attempt: Some(JobAttempt { number: job.attempt, owner: service.boot }),
        detail: why,
        result,
        notice,
        told_in,
        at: service.clock.now(),
    }
}

/// Records that the result has been submitted: the requester finds it in the outbox or in the job.
pub(super) async fn submit(service: &JobService, job: &JobRecord) {
    let change = JobChange {
        job: job.job_id,
        to: JobState::Submitted,
        attempt: None,
        detail: String::new(),
        result: None,
        notice: None,
        told_in: None,
        at: service.clock.now(),
    };
    if let Some(JobChanged::Now(job)) =
        until_stored(&service.draining, || service.job_store.change(change.clone())).await
    {
        metrics::count_job_state(job.state);
    }
}
