//! The desk: begins jobs as places become free, takes each from attempt to attempt to its end, and settles its row.
//!
//! It decides from the store alone, and every step of it can be repeated: an attempt is a message with an idempotency key made
//! of the job and the attempt, so that it makes one run however often it is sent; a row is settled by a change that is legal
//! once, and whoever asked is told in the same commit. So a start does after a crash what it does anyway.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{
    Ack, Asker, Body, IdempotencyKey, Inbound, JobChange, JobChanged, JobFilter, JobRecord, JobState, Outbound,
    Purpose, QueueMode, Refusal, RunId, RunOptions, RunRecord, RunWatch, StoreError,
};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::outcome::Outcome;
use super::text;
use crate::house::House;
use crate::metrics;
use crate::rights::{self, NoLonger};

/// Longest time between two looks for jobs to begin, where nothing says that there is one.
const LOOK: Duration = Duration::from_secs(60);
/// First and longest pause between two attempts to reach the store, or a lane that is busy.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Wakes the desk.
#[derive(Debug, Default)]
pub(crate) struct Bell(Notify);

impl Bell {
    /// There may be a job to begin.
    pub(crate) fn ring(&self) {
        self.0.notify_one();
    }
}

/// The desk's task.
pub(crate) struct Desk {
    house: Arc<House>,
    /// Begins nothing any more; what is at work is awaited.
    stop: CancellationToken,
    /// One task for each job at work; ends with the desk.
    at_work: JoinSet<()>,
}

/// Counts the crashes of jobs that the last daemon left at work, and ends those that it died of too often. Before any lane is
/// opened: a job that is ended here asks no model any more.
///
/// # Errors
/// The store does not answer.
pub(crate) async fn take_up(house: &House) -> Result<(), StoreError> {
    for job in house.store.jobs.take_up(house.boot, house.clock.now()).await? {
        if job.crashes < house.jobs.max_crashes || has_ended(house, &job).await? {
            continue;
        }
        tracing::error!(job = %job.job_id, crashes = job.crashes, "a job is given up: the daemon died of it again and again");
        let why = format!("given up: Belay died {} times in a row while it was at work", job.crashes);
        let change = change_to(house, &job, &Outcome::failed(why), None);
        if let JobChanged::Now(job) = house.store.jobs.change(change).await? {
            metrics::job_came_to(job.state);
        }
    }
    Ok(())
}

/// Whether the run of the job's attempt has ended: then nothing is left that could crash.
async fn has_ended(house: &House, job: &JobRecord) -> Result<bool, StoreError> {
    let Some(known) = house.store.threads.find(&key_of(job)).await? else { return Ok(false) };
    Ok(house.store.runs.run(known.run_id).await?.is_some_and(|run| run.status.is_end()))
}

impl Desk {
    pub(crate) fn new(house: Arc<House>, stop: CancellationToken) -> Self {
        Self { house, stop, at_work: JoinSet::new() }
    }

    /// Works until told to stop, and then until what is at work has ended or was laid aside.
    ///
    /// # Cancel safety
    /// Dropped, everything goes on with the next start; jobs that were at work count a crash then.
    pub(crate) async fn run(mut self) {
        let house = self.house.clone();
        let again = insist(&house, || house.store.jobs.take_up(house.boot, house.clock.now())).await;
        again.into_iter().flatten().for_each(|job| self.carry(job));
        self.hand_in().await;
        while !self.stop.is_cancelled() {
            let pause = self.begin_all().await;
            tokio::select! {
                biased; // the end first; then a place that has become free
                () = self.stop.cancelled() => {}
                Some(ended) = self.at_work.join_next() => report(ended),
                () = house.bell.0.notified() => {}
                () = sleep(pause) => {}
            }
        }
        // Now, and once more at the end: what is killed within the drain has been laid aside as well.
        self.park().await;
        while let Some(ended) = self.at_work.join_next().await {
            report(ended);
        }
        self.park().await;
    }

    /// Begins jobs until there is no place, or none waits. Returns when to look again.
    async fn begin_all(&mut self) -> Duration {
        let (house, caps) = (self.house.clone(), self.house.jobs.caps());
        while house.jobs.enabled && !self.stop.is_cancelled() {
            match house.store.jobs.begin_next(caps, house.clock.now()).await {
                Ok(Some(job)) => {
                    metrics::job_came_to(job.state);
                    self.carry(job);
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "jobs could not be looked for; trying again");
                    return BACKOFF.1;
                }
            }
        }
        LOOK
    }

    /// Hands in results that a crash has left between two writes: whoever asked has been told already.
    async fn hand_in(&self) {
        let house = &self.house;
        let filter = JobFilter { states: vec![JobState::Completed], limit: 1000, ..JobFilter::default() };
        let left = insist(house, || house.store.jobs.jobs(filter.clone())).await;
        for job in left.into_iter().flatten() {
            submit(house, &job).await;
        }
    }

    fn carry(&mut self, job: JobRecord) {
        let span = tracing::info_span!("job", id = %job.job_id);
        self.at_work.spawn(carry(self.house.clone(), job).instrument(span));
    }

    async fn park(&self) {
        if let Err(error) = self.house.store.jobs.park(self.house.clock.now()).await {
            tracing::error!(%error, "jobs could not be laid aside; each at work counts a crash at the next start");
        }
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "the care for a job crashed; the next start takes it up");
    }
}

/// Takes a job from attempt to attempt to its end, or until the daemon ends.
async fn carry(house: Arc<House>, mut job: JobRecord) {
    loop {
        if job.state == JobState::Stuck {
            // Nothing of the attempt before is left when the next one begins.
            if let Some(run) = job.run_id {
                house.processes.end(run).await;
            }
            match insist(&house, || house.store.jobs.begin_again(job.job_id, house.clock.now())).await {
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
        tracing::info!(attempt = job.attempt, "a job is at work");
        let (outcome, run) = match rights::of_job(&house, &job) {
            Ok(asker) => match attempt(&house, &job, &asker).await {
                Attempt::Ended(run) => (Outcome::of(&run), Some(run.run_id)),
                Attempt::Refused(why) => (Outcome::failed(why), None),
                Attempt::LaidAside => return,
            },
            // A run that a restart has taken up finds the same, and ends.
            Err(NoLonger(why)) => (Outcome::failed(why), job.run_id),
        };
        match settle(&house, &job, outcome, run).await {
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
async fn attempt(house: &House, job: &JobRecord, asker: &Asker) -> Attempt {
    let mut pause = BACKOFF.0;
    while !house.draining.is_cancelled() {
        let (run, watch) = match house.inlet.send(message(job, asker, text::attempt(job), Some(key_of(job)))).await {
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
        insist(house, || house.store.jobs.note_run(job.job_id, job.attempt, run)).await;
        if let Some(record) = end_of(house, run, watch).await {
            return Attempt::Ended(record);
        }
        sleep(pause).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
    Attempt::LaidAside
}

/// Waits for the end of a run; `None`: it was let go without one, for now.
async fn end_of(house: &House, run: RunId, watch: Option<RunWatch>) -> Option<Arc<RunRecord>> {
    if let Some(mut watch) = watch {
        let ended = |record: &Option<Arc<RunRecord>>| record.as_ref().is_some_and(|record| record.status.is_end());
        if let Ok(record) = watch.finished.wait_for(ended).await {
            return record.clone();
        }
    }
    let stored = insist(house, || house.store.runs.run(run)).await.flatten();
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
        relayed: true, // nobody can be asked
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
async fn settle(house: &House, job: &JobRecord, outcome: Outcome, run: Option<RunId>) -> Option<JobRecord> {
    let outcome = match outcome {
        Outcome::Stuck(why) if job.attempt >= house.jobs.max_attempts => {
            Outcome::failed(format!("{why}, in its {} and last attempt", ordinal(job.attempt)))
        }
        outcome => outcome,
    };
    let change = change_to(house, job, &outcome, run);
    let changed = insist(house, || house.store.jobs.change(change.clone())).await?;
    house.bell.ring(); // its place may be free
    let JobChanged::Now(job) = changed else { return None };
    metrics::job_came_to(job.state);
    tracing::info!(state = job.state.word(), why = job.why, "a job has come into another state");
    match job.state {
        JobState::Completed => {
            submit(house, &job).await;
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

/// The change that this outcome is, with what whoever asked is told of it.
fn change_to(house: &House, job: &JobRecord, outcome: &Outcome, run: Option<RunId>) -> JobChange {
    let (to, why, result) = match outcome {
        Outcome::Done(result) => (JobState::Completed, String::new(), Some(result.clone())),
        Outcome::Stopped(why) => (JobState::Cancelled, why.clone(), None),
        Outcome::Stuck(why) => (JobState::Stuck, why.clone(), None),
        Outcome::Failed { why, partial } => (JobState::Failed, why.clone(), partial.clone()),
    };
    let told = job.reply_to.clone().filter(|route| to != JobState::Stuck && rights::may_tell(house, route));
    let notice = told.map(|route| Outbound::new(run, route, text::notice(job, outcome)));
    JobChange { job: job.job_id, to, attempt: Some(job.attempt), why, result, notice, at: house.clock.now() }
}

/// The result is where whoever asked finds it: in the outbox, or in the job.
pub(super) async fn submit(house: &House, job: &JobRecord) {
    let change = JobChange {
        job: job.job_id,
        to: JobState::Submitted,
        attempt: None,
        why: String::new(),
        result: None,
        notice: None,
        at: house.clock.now(),
    };
    if let Some(JobChanged::Now(job)) = insist(house, || house.store.jobs.change(change.clone())).await {
        metrics::job_came_to(job.state);
    }
}

/// Asks the store until it answers, or until the daemon ends: `None`.
async fn insist<T, F: Future<Output = Result<T, StoreError>>>(house: &House, ask: impl Fn() -> F) -> Option<T> {
    let mut pause = BACKOFF.0;
    loop {
        match ask().await {
            Ok(answer) => return Some(answer),
            Err(error) => tracing::error!(%error, "the store does not answer about a job; trying again"),
        }
        if house.draining.is_cancelled() {
            return None;
        }
        sleep(pause).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
}
