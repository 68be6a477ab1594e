//! The desk: begins jobs as places become free, and has each cared for until it is over.
//!
//! It decides from the store alone, and every step of it can be repeated: so a start does after a crash what it does anyway.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{JobChanged, JobFilter, JobRecord, JobState, StoreError};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::outcome::AttemptOutcome;
use super::service::JobService;
use super::supervisor::{change_to, key_of, submit, supervise, until_stored};
use crate::submitter::BACKOFF;
use belay_run::metrics;

/// Longest time between two looks for jobs to begin, where nothing says that there is one.
const LOOK: Duration = Duration::from_secs(60);

/// Wakes the desk.
#[derive(Debug, Default)]
pub struct Wakeup(Notify);

impl Wakeup {
    /// There may be a job to begin.
    pub fn ring(&self) {
        self.0.notify_one();
    }
}

/// The desk's task.
pub struct JobScheduler {
    service: Arc<JobService>,
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
pub async fn take_up(service: &JobService) -> Result<(), StoreError> {
    for job in service.attempts.take_up(service.boot).await? {
        if job.crashes < service.config.max_crashes || has_ended(service, &job).await? {
            continue;
        }
        tracing::error!(job = %job.job_id, crashes = job.crashes, "a job is given up: the daemon died of it again and again");
        let why = format!("given up: Belay crashed {} times in a row while it was running", job.crashes);
        let change = change_to(service, &job, &AttemptOutcome::failed(why), None);
        if let JobChanged::Now(job) = service.job_store.change(change).await? {
            metrics::job_came_to(job.state);
        }
    }
    Ok(())
}

/// Whether the run of the job's attempt has ended: then nothing is left that could crash.
async fn has_ended(service: &JobService, job: &JobRecord) -> Result<bool, StoreError> {
    let Some(known) = service.inputs.find(&key_of(job)).await? else { return Ok(false) };
    Ok(service.runs.run(known.run_id).await?.is_some_and(|run| run.status.is_end()))
}

impl JobScheduler {
    /// A scheduler that has not looked yet; it ends when `stop` is cancelled.
    pub fn new(service: Arc<JobService>, stop: CancellationToken) -> Self {
        Self { service, stop, at_work: JoinSet::new() }
    }

    /// Works until told to stop, and then until what is at work has ended or was laid aside.
    ///
    /// # Cancel safety
    /// Dropped, everything goes on with the next start; jobs that were at work count a crash then.
    pub async fn run(mut self) {
        let service = self.service.clone();
        let again = until_stored(&service, || service.attempts.take_up(service.boot)).await;
        again.into_iter().flatten().for_each(|job| self.carry(job));
        self.hand_in().await;
        while !self.stop.is_cancelled() {
            let pause = self.begin_all().await;
            tokio::select! {
                biased; // the end first; then a place that has become free
                () = self.stop.cancelled() => {}
                Some(ended) = self.at_work.join_next() => report(ended),
                () = service.bell.0.notified() => {}
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
        let (service, caps) = (self.service.clone(), self.service.config.caps());
        while service.config.enabled && !self.stop.is_cancelled() {
            match service.attempts.begin_next(caps, service.clock.now()).await {
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
        let service = &self.service;
        let filter = JobFilter { states: vec![JobState::Completed], limit: 1000, ..JobFilter::default() };
        let left = until_stored(service, || service.jobs.jobs(filter.clone())).await;
        for job in left.into_iter().flatten() {
            submit(service, &job).await;
        }
    }

    fn carry(&mut self, job: JobRecord) {
        let span = tracing::info_span!("job", id = %job.job_id);
        self.at_work.spawn(supervise(self.service.clone(), job).instrument(span));
    }

    async fn park(&self) {
        if let Err(error) = self.service.attempts.park().await {
            tracing::error!(%error, "jobs could not be suspended; each running job counts a crash at the next start");
        }
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "the supervisor of a job crashed again while its crash was settled; the next start \
                                 resumes it");
    }
}
