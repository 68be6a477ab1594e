//! The care for one job at work: from attempt to attempt to its end, and its row settled.
//!
//! Every step of it can be repeated: an attempt is a message with an idempotency key made of the job and the attempt, so that it
//! makes one run however often it is sent; a row is settled by a change that is legal once, and whoever asked is told in the
//! same commit.

use std::future::Future;
use std::sync::Arc;

use belay_protocol::{
    Asker, Body, Control, IdempotencyKey, Inbound, JobChange, JobChanged, JobId, JobRecord, JobState, NO_SESSION,
    Outbound, Purpose, QueueMode, RunId, RunOptions, RunRecord, RunWatch, SessionNotice, StopTarget, StoreError, Work,
};
use tokio::time::sleep;

use super::outcome::AttemptOutcome;
use super::service::JobService;
use super::text;
use crate::submitter::{BACKOFF, Submitted};
use belay_run::metrics;
use belay_run::restart::{Restarts, caught};
use belay_run::rights::{self, Revoked};

/// Carries a job, also where that crashes: a crash costs the attempt, as one of which nothing is heard, and the job keeps no place
/// that nobody works in.
pub(super) async fn supervise(service: Arc<JobService>, job: JobRecord) {
    let (id, mut next, mut restarts) = (job.job_id, Some(job), Restarts::default());
    loop {
        let done = match next.take() {
            Some(job) => caught(|| run_attempts(&service, job)).await.map(|()| None),
            None => caught(|| recover(&service, id)).await,
        };
        match done {
            Some(Some(again)) => next = Some(again),
            Some(None) => return,
            // The next thing is to end the attempt, or to try that again.
            None => {
                tracing::error!(job = %id, "the supervisor of a job crashed; its attempt is ended");
                if !restarts.back_off("job_attempt", &service.draining).await {
                    return; // the next start counts a crash
                }
            }
        }
    }
}

/// Ends the attempt of a job whose care has crashed, whatever of it is at work, and settles its row. Returns the job where it is
/// to be begun again.
async fn recover(service: &JobService, id: JobId) -> Option<JobRecord> {
    let job = until_stored(service, || service.jobs.job(id)).await??;
    if !job.state.takes_place() {
        service.bell.ring(); // it was settled, and its place may be free
        if job.state == JobState::Completed {
            submit(service, &job).await;
        }
        return None;
    }
    let key = key_of(&job);
    let run = until_stored(service, || service.inputs.find(&key)).await?.map(|known| known.run_id);
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

/// Has the run of an attempt stopped, and waits until it has ended. `None`: the daemon ends before it has.
async fn end_run(service: &JobService, job: &JobRecord, run: RunId) -> Option<()> {
    let mut pause = BACKOFF.0;
    while !service.draining.is_cancelled() {
        match until_stored(service, || service.runs.run(run)).await? {
            Some(record) if !record.status.is_end() => {}
            _ended_or_gone => return Some(()),
        }
        let stop = Body::Control(Control::Stop(StopTarget::Run(run)));
        service.submitter.send(message(job, &job.creator, stop)).await;
        sleep(pause).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
    None
}

/// Takes a job from attempt to attempt to its end, or until the daemon ends.
async fn run_attempts(service: &JobService, mut job: JobRecord) {
    loop {
        if job.state == JobState::Stuck {
            // Nothing of the attempt before is left when the next one begins.
            if let Some(run) = job.run_id {
                service.processes.end(run).await;
            }
            match until_stored(service, || service.attempts.begin_again(job.job_id, service.clock.now())).await {
                Some(JobChanged::Now(again)) => {
                    metrics::job_came_to(again.state);
                    job = *again;
                }
                Some(JobChanged::Not(_) | JobChanged::Unknown) | None => return,
            }
        }
        if job.state != JobState::InProgress {
            return; // cancelled meanwhile
        }
        tracing::info!(attempt = job.attempt, "a job is running");
        let (outcome, run) = match rights::of_job(&service.access, &job) {
            Ok(asker) => match attempt(service, &job, &asker).await {
                Attempt::Ended(run) => (AttemptOutcome::of(&run), Some(run.run_id)),
                Attempt::Refused(why) => (AttemptOutcome::failed(why), None),
                Attempt::LaidAside => return,
            },
            // A run that a restart has taken up finds the same, and ends.
            Err(Revoked(why)) => (AttemptOutcome::failed(why), job.run_id),
        };
        match settle(service, &job, outcome, run).await {
            Some(stuck) => job = stuck,
            None => return,
        }
    }
}

/// What became of an attempt.
enum Attempt {
    /// Its run has ended.
    Ended(Arc<RunRecord>),
    /// There is no run: the words say why.
    Refused(String),
    /// The daemon ends; the next start goes on.
    LaidAside,
}

/// Sends the message that is the attempt, and waits for the end of its run. Sent again it finds the same run.
async fn attempt(service: &JobService, job: &JobRecord, asker: &Asker) -> Attempt {
    let (message, mut pause) = (attempt_message(job, asker), BACKOFF.0);
    while let Some(submitted) = service.submitter.submit(&message, &service.draining).await {
        let Submitted { run, watch } = match submitted {
            Ok(submitted) => submitted,
            Err(why) => return Attempt::Refused(why),
        };
        until_stored(service, || service.attempts.note_run(job.job_id, job.attempt, run)).await;
        if let Some(record) = end_of(service, run, watch).await {
            return Attempt::Ended(record);
        }
        sleep(pause).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
    Attempt::LaidAside
}

/// Waits for the end of a run; `None`: it was let go without one, for now.
async fn end_of(service: &JobService, run: RunId, watch: Option<RunWatch>) -> Option<Arc<RunRecord>> {
    if let Some(mut watch) = watch
        && let Some(record) = watch.ended().await
    {
        return Some(record);
    }
    let stored = until_stored(service, || service.runs.run(run)).await.flatten();
    stored.filter(|record| record.status.is_end()).map(Arc::new)
}

/// A message to a job's session in the name of whoever asked for the job; what is told is decided when the row is settled.
pub(super) fn message(job: &JobRecord, asker: &Asker, body: Body) -> Inbound {
    Inbound {
        work: Work::Job { job: job.job_id, attempt: None },
        options: RunOptions { queue: Some(QueueMode::Steer), ..RunOptions::default() },
        ..Inbound::new(Purpose::Job.channel(), job.session.clone(), rights::principal(asker), body)
    }
}

/// The message that is the attempt at work.
fn attempt_message(job: &JobRecord, asker: &Asker) -> Inbound {
    Inbound {
        key: Some(key_of(job)),
        work: Work::Job { job: job.job_id, attempt: Some(job.attempt) },
        ..message(job, asker, Body::Text(text::attempt(job)))
    }
}

/// What makes a second delivery of an attempt recognisable.
pub(super) fn key_of(job: &JobRecord) -> IdempotencyKey {
    IdempotencyKey {
        channel: Purpose::Job.channel(),
        account: job.job_id.to_string().into(),
        message_id: job.attempt.to_string().into(),
    }
}

/// Settles the row of a job whose attempt has ended. Returns the job where it is stuck and is to be begun again.
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
    let changed = until_stored(service, || service.job_store.change(change.clone())).await?;
    service.bell.ring(); // its place may be free
    let JobChanged::Now(job) = changed else { return None };
    refresh(service, &job, change.told_in).await;
    metrics::job_came_to(job.state);
    tracing::info!(state = job.state.word(), why = job.detail, "a job has come into another state");
    match job.state {
        JobState::Completed => {
            submit(service, &job).await;
            None
        }
        JobState::Stuck => Some(*job),
        _ => None,
    }
}

/// Has the conversation that asked read the notice, if it is awake: its next turn knows of it.
async fn refresh(service: &JobService, job: &JobRecord, told_in: Option<SessionNotice>) {
    let Some(SessionNotice { session, .. }) = told_in else { return };
    let body = Body::Control(Control::Refresh(session));
    service.submitter.send(message(job, &job.creator, body)).await;
}

fn ordinal(attempt: u32) -> String {
    match attempt {
        1 => "first".to_owned(),
        2 => "second".to_owned(),
        3 => "third".to_owned(),
        n => format!("{n}th"),
    }
}

/// The change that this outcome is, with what whoever asked is told of it.
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
    // Where a routine has asked, its routine run tells what there is to tell; a program without a session reads the job.
    let in_conversation = job.routine_run.is_none() && job.asked_in.as_str() != NO_SESSION;
    let told_in = (to != JobState::Stuck && in_conversation)
        .then(|| SessionNotice { session: job.asked_in.clone(), text: text::notice_in_session(job, outcome) });
    JobChange {
        job: job.job_id,
        to,
        attempt: Some(job.attempt),
        detail: why,
        result,
        notice,
        told_in,
        at: service.clock.now(),
    }
}

/// The result is where whoever asked finds it: in the outbox, or in the job.
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
    if let Some(JobChanged::Now(job)) = until_stored(service, || service.job_store.change(change.clone())).await {
        metrics::job_came_to(job.state);
    }
}

/// Asks the store until it answers, or until the daemon ends: `None`.
pub(super) async fn until_stored<T, F: Future<Output = Result<T, StoreError>>>(
    service: &JobService,
    ask: impl Fn() -> F,
) -> Option<T> {
    let mut pause = BACKOFF.0;
    loop {
        match ask().await {
            Ok(answer) => return Some(answer),
            Err(error) => tracing::error!(%error, "the store does not answer about a job; trying again"),
        }
        if service.draining.is_cancelled() {
            return None;
        }
        sleep(pause).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
}
