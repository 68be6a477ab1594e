//! The job scheduler: begins jobs as slots become free, and supervises each until it is over.
//!
//! It decides from the store alone, and can repeat each of its steps. A start after a crash is therefore an ordinary
//! start.

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
use super::supervisor::{change_to, key_of, submit, supervise};
use belay_run::metrics;
use belay_run::retry::{STORE, until_stored};

/// Longest time between two looks for jobs to begin when nothing wakes the scheduler.
const LOOK: Duration = Duration::from_secs(60);

/// Wakes the scheduler.
#[derive(Debug, Default)]
pub struct Wakeup(Notify);

impl Wakeup {
    /// Reports that there may be a job to begin.
    pub fn ring(&self) {
        self.0.notify_one();
    }
}

/// The task of the job scheduler.
pub struct JobScheduler {
    service: Arc<JobService>,
    /// When cancelled, the scheduler begins no more jobs and waits for the running ones.
    stop: CancellationToken,
    /// One task for each running job; all end with the scheduler.
    at_work: JoinSet<()>,
}

/// Counts a crash for each job that was running when the last daemon died, and fails the jobs that have reached
/// `max_crashes`. Call it before any lane opens, so that a failed job makes no more model calls.
///
/// # Errors
/// The store does not answer.
pub async fn reclaim(service: &JobService) -> Result<(), StoreError> {
    for job in service.attempts.reclaim(service.boot).await? {
        if job.crashes < service.config.max_crashes || has_ended(service, &job).await? {
            continue;
        }
        tracing::error!(job = %job.job_id, crashes = job.crashes, "a job is given up: the daemon died of it again and again");
        let why = format!("given up: Belay crashed {} times in a row while it was running", job.crashes);
        let change = change_to(service, &job, &AttemptOutcome::failed(why), None);
        if let JobChanged::Now(job) = service.job_store.change(change).await? {
            metrics::count_job_state(job.state);
        }
    }
    Ok(())
}

/// Returns whether the run of the current attempt has ended. Such a job does not fail because of its crashes.
async fn has_ended(service: &JobService, job: &JobRecord) -> Result<bool, StoreError> {
    let Some(known) = service.inputs.find(&key_of(job)).await? else { return Ok(false) };
    Ok(service.runs.run(known.run_id).await?.is_some_and(|run| run.status.is_end()))
}

impl JobScheduler {
    /// A scheduler that ends when `stop` is cancelled.
    pub fn new(service: Arc<JobService>, stop: CancellationToken) -> Self {
        Self { service, stop, at_work: JoinSet::new() }
    }

    /// Begins jobs until `stop` is cancelled. Then waits until each running job has ended or been deferred.
    ///
    /// # Cancel safety
    /// When dropped, all jobs continue at the next start, which counts a crash for each running one.
    pub async fn run(mut self) {
        let service = self.service.clone();
        let again = until_stored(&service.draining, || service.attempts.reclaim(service.boot)).await;
        again.into_iter().flatten().for_each(|job| self.carry(job));
        self.hand_in().await;
        while !self.stop.is_cancelled() {
            let pause = self.begin_all().await;
            tokio::select! {
                biased; // the end first; then a free slot
                () = self.stop.cancelled() => {}
                Some(ended) = self.at_work.join_next() => report(ended),
                () = service.bell.0.notified() => {}
                () = sleep(pause) => {}
            }
        }
        // Now, and again at the end: the running jobs are suspended even if the process is killed during the drain.
        self.suspend().await;
        while let Some(ended) = self.at_work.join_next().await {
            report(ended);
        }
        self.suspend().await;
    }

    /// Begins jobs until no slot is free or no job is queued. Returns the time until the next look.
    async fn begin_all(&mut self) -> Duration {
        let (service, caps) = (self.service.clone(), self.service.config.caps());
        // The thaw wakes the scheduler.
        while service.config.enabled && !self.stop.is_cancelled() && !service.freezer.holds_everything() {
            match service.attempts.begin_next(caps, service.freezer.held_jobs(), service.clock.now()).await {
                Ok(Some(job)) => {
                    metrics::count_job_state(job.state);
                    self.carry(job);
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "jobs could not be looked for; trying again");
                    return STORE.longest;
                }
            }
        }
        LOOK
    }

    /// Submits results that a crash left between two writes. The requester has been notified already.
    async fn hand_in(&self) {
        let service = &self.service;
        let filter = JobFilter { states: vec![JobState::Completed], limit: 1000, ..JobFilter::default() };
        let left = until_stored(&service.draining, || service.jobs.jobs(filter.clone())).await;
        for job in left.into_iter().flatten() {
            submit(service, &job).await;
        }
    }

    fn carry(&mut self, job: JobRecord) {
        let span = tracing::info_span!("job", id = %job.job_id);
        self.at_work.spawn(supervise(self.service.clone(), job).instrument(span));
    }

    async fn suspend(&self) {
        if let Err(error) = self.service.attempts.suspend().await {
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
