//! The care for one job at work: from attempt to attempt to its end, and its row settled.
//!
//! Every step of it can be repeated: an attempt is a message with an idempotency key made of the job and the attempt, so that it
//! makes one run however often it is sent; a row is settled by a change that is legal once, and whoever asked is told in the
//! same commit.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{
    Ack, Asker, Body, Control, IdempotencyKey, Inbound, JobChange, JobChanged, JobId, JobRecord, JobState, NO_SESSION,
    Outbound, Purpose, QueueMode, Refusal, RunId, RunOptions, RunRecord, RunWatch, SessionLifetime, SessionNotice,
    StopTarget, StoreError,
};
use tokio::time::sleep;

use super::outcome::Outcome;
use super::service::JobService;
use super::text;
use belay_run::metrics;
use belay_run::restart::{Restarts, caught};
use belay_run::rights::{self, NoLonger};

/// First and longest pause between two attempts to reach the store, or a lane that is busy.
pub(super) const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Carries a job, also where that crashes: a crash costs the attempt, as one of which nothing is heard, and the job keeps no place
/// that nobody works in.
pub(super) async fn care(service: Arc<JobService>, job: JobRecord) {
    let (id, mut next, mut restarts) = (job.job_id, Some(job), Restarts::default());
    loop {
        let done = match next.take() {
            Some(job) => caught(|| carry(&service, job)).await.map(|()| None),
            None => caught(|| mend(&service, id)).await,
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
async fn mend(service: &JobService, id: JobId) -> Option<JobRecord> {
    let job = insist(service, || service.jobs.job(id)).await??;
    if !job.state.takes_place() {
        service.bell.ring(); // it was settled, and its place may be free
        if job.state == JobState::Completed {
            submit(service, &job).await;
        }
        return None;
    }
    let key = key_of(&job);
    let run = insist(service, || service.threads.find(&key)).await?.map(|known| known.run_id);
    if let Some(run) = run {
        end_run(service, &job, run).await?;
        service.processes.end(run).await; // the row may not know of this run
    }
    if job.state == JobState::Stuck {
        return Some(job);
    }
    settle(service, &job, Outcome::Stuck("an internal error of Belay ended it; see the log".to_owned()), run).await
}

/// Has the run of an attempt stopped, and waits until it has ended. `None`: the daemon ends before it has.
async fn end_run(service: &JobService, job: &JobRecord, run: RunId) -> Option<()> {
    let mut pause = BACKOFF.0;
    while !service.draining.is_cancelled() {
        match insist(service, || service.runs.run(run)).await? {
            Some(record) if !record.status.is_end() => {}
            _ended_or_gone => return Some(()),
        }
        let stop = Body::Control(Control::Stop(StopTarget::Run(run)));
        service.inlet.send(Inbound { body: stop, ..message(job, &job.creator, String::new(), None) }).await;
        sleep(pause).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
    None
}

/// Takes a job from attempt to attempt to its end, or until the daemon ends.
async fn carry(service: &JobService, mut job: JobRecord) {
    loop {
        if job.state == JobState::Stuck {
            // Nothing of the attempt before is left when the next one begins.
            if let Some(run) = job.run_id {
                service.processes.end(run).await;
            }
            match insist(service, || service.jobs.begin_again(job.job_id, service.clock.now())).await {
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
                Attempt::Ended(run) => (Outcome::of(&run), Some(run.run_id)),
                Attempt::Refused(why) => (Outcome::failed(why), None),
                Attempt::LaidAside => return,
            },
            // A run that a restart has taken up finds the same, and ends.
            Err(NoLonger(why)) => (Outcome::failed(why), job.run_id),
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
    let mut pause = BACKOFF.0;
    while !service.draining.is_cancelled() {
        let (run, watch) = match service.inlet.send(message(job, asker, text::attempt(job), Some(key_of(job)))).await {
            Some(Ack::Accepted(accepted)) => (accepted.run_id, accepted.watch),
            Some(Ack::Refused(Refusal::Conflict { run_id })) => (run_id, None),
            Some(Ack::Refused(Refusal::Forbidden(why) | Refusal::Invalid(why))) => return Attempt::Refused(why),
            // Busy, a store that does not answer, a lane that was let go: sent again it is the same message.
            _ => {
                sleep(pause).await;
                pause = (pause * 2).min(BACKOFF.1);
                continue;
            }
        };
        insist(service, || service.jobs.note_run(job.job_id, job.attempt, run)).await;
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
    if let Some(mut watch) = watch {
        let ended = |record: &Option<Arc<RunRecord>>| record.as_ref().is_some_and(|record| record.status.is_end());
        if let Ok(record) = watch.finished.wait_for(ended).await {
            return record.clone();
        }
    }
    let stored = insist(service, || service.runs.run(run)).await.flatten();
    stored.filter(|record| record.status.is_end()).map(Arc::new)
}

/// A message to a job's session in the name of whoever asked for the job.
pub(super) fn message(job: &JobRecord, asker: &Asker, text: String, key: Option<IdempotencyKey>) -> Inbound {
    Inbound {
        channel: Purpose::Job.channel(),
        session: job.session.clone(),
        principal: rights::principal(asker),
        key,
        reply_to: None, // what is told is decided when the row is settled
        body: Body::Text(text),
        history: Vec::new(),
        want_deltas: false,
        outputs: Vec::new(),
        lifetime: SessionLifetime::Lasting,
        relayed: true, // nobody can be asked
        provenance: None,
        options: RunOptions { queue: Some(QueueMode::Steer), ..RunOptions::default() },
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
async fn settle(service: &JobService, job: &JobRecord, outcome: Outcome, run: Option<RunId>) -> Option<JobRecord> {
    let outcome = match outcome {
        Outcome::Stuck(why) if job.attempt >= service.config.max_attempts => {
            Outcome::failed(format!("{why}, in its {} and last attempt", ordinal(job.attempt)))
        }
        outcome => outcome,
    };
    let change = change_to(service, job, &outcome, run);
    let changed = insist(service, || service.jobs.change(change.clone())).await?;
    service.bell.ring(); // its place may be free
    let JobChanged::Now(job) = changed else { return None };
    refresh(service, &job, change.told_in).await;
    metrics::job_came_to(job.state);
    tracing::info!(state = job.state.word(), why = job.why, "a job has come into another state");
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
    service.inlet.send(Inbound { body, ..message(job, &job.creator, String::new(), None) }).await;
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
pub(super) fn change_to(service: &JobService, job: &JobRecord, outcome: &Outcome, run: Option<RunId>) -> JobChange {
    let (to, why, result) = match outcome {
        Outcome::Done(result) => (JobState::Completed, String::new(), Some(result.clone())),
        Outcome::Stopped(why) => (JobState::Cancelled, why.clone(), None),
        Outcome::Stuck(why) => (JobState::Stuck, why.clone(), None),
        Outcome::Failed { why, partial } => (JobState::Failed, why.clone(), partial.clone()),
    };
    let told = job.reply_to.clone().filter(|route| to != JobState::Stuck && rights::may_tell(&service.access, route));
    let notice = told.map(|route| Outbound::new(run, route, text::notice(job, outcome)));
    // Where a routine has asked, its routine run tells what there is to tell; a program without a session reads the job.
    let in_conversation = job.firing.is_none() && job.asked_in.as_str() != NO_SESSION;
    let told_in = (to != JobState::Stuck && in_conversation)
        .then(|| SessionNotice { session: job.asked_in.clone(), text: text::notice_in_session(job, outcome) });
    JobChange { job: job.job_id, to, attempt: Some(job.attempt), why, result, notice, told_in, at: service.clock.now() }
}

/// The result is where whoever asked finds it: in the outbox, or in the job.
pub(super) async fn submit(service: &JobService, job: &JobRecord) {
    let change = JobChange {
        job: job.job_id,
        to: JobState::Submitted,
        attempt: None,
        why: String::new(),
        result: None,
        notice: None,
        told_in: None,
        at: service.clock.now(),
    };
    if let Some(JobChanged::Now(job)) = insist(service, || service.jobs.change(change.clone())).await {
        metrics::job_came_to(job.state);
    }
}

/// Asks the store until it answers, or until the daemon ends: `None`.
pub(super) async fn insist<T, F: Future<Output = Result<T, StoreError>>>(
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
