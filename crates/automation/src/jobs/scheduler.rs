//! The job scheduler: begins jobs as slots become free, and supervises each until it is over.
//!
//! It decides from the store alone, and can repeat each of its steps. A start after a crash is therefore an ordinary
//! start. In a cluster, it also looks after each change of jobs by another node, and takes over the jobs of nodes that
//! end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{JobChanged, JobFilter, JobId, JobRecord, JobState, StoreError, Topic};
use tokio::sync::{Notify, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::outcome::AttemptOutcome;
use super::service::JobService;
use super::supervisor::{change_to, key_of, stop, submit, supervise};
use crate::wakes::Wakes;
use belay_run::metrics;
use belay_run::retry::{STORE, until_stored};

/// Longest time between two looks for jobs to begin when nothing wakes the scheduler.
const LOOK: Duration = Duration::from_secs(60);

/// Least time between two looks because another node of a cluster has changed jobs.
const AFTER_CHANGES: Duration = Duration::from_millis(100);
/// Least time between two looks for jobs of nodes that have ended.
const AFTER_NODES: Duration = Duration::from_secs(1);

/// Wakes the scheduler, and those who wait for the end of a job.
#[derive(Debug, Default)]
pub struct Wakeup {
    /// There may be a job to begin.
    begin: Notify,
    /// The number of jobs whose work has ended at this node. It wraps.
    ended: watch::Sender<u64>,
}

impl Wakeup {
    /// Reports that there may be a job to begin.
    pub fn ring(&self) {
        self.begin.notify_one();
    }

    /// Reports that no more work is done on a job at this node, after its row says why.
    pub(super) fn work_ended(&self) {
        self.ended.send_modify(|number| *number = number.wrapping_add(1));
    }

    /// Changes with each job whose work ends at this node from now on. It lives as long as `self`.
    pub(crate) fn ends(&self) -> watch::Receiver<u64> {
        self.ended.subscribe()
    }
}

/// How the scheduler looks for jobs to begin.
enum Look {
    /// Begins what can begin.
    Begin,
    /// Reads first whether a job waits.
    IfPending,
}

/// The task of the job scheduler.
pub struct JobScheduler {
    service: Arc<JobService>,
    /// When cancelled, the scheduler begins no more jobs and waits for the running ones.
    stop: CancellationToken,
    /// One task for each running job; all end with the scheduler.
    at_work: JoinSet<()>,
    /// The jobs of these tasks, and those whose supervisor crashed: only the next start resumes them.
    supervised: HashMap<Id, JobId>,
    /// The last time at which results of earlier starts were handed in.
    handed_in: Instant,
}

/// Counts a crash for each job that was running when the last daemon died, and fails the jobs that have reached
/// `max_crashes`. Call it before any lane opens, so that a failed job makes no more model calls.
///
/// # Errors
/// The store does not answer.
pub async fn reclaim(service: &JobService) -> Result<(), StoreError> {
    for job in service.attempts.reclaim(service.boot).await? {
        give_up_crashed(service, &job).await?;
    }
    Ok(())
}

/// Fails a job that has reached `max_crashes`. Returns whether it did.
async fn give_up_crashed(service: &JobService, job: &JobRecord) -> Result<bool, StoreError> {
    if job.crashes < service.config.max_crashes || has_ended(service, job).await? {
        return Ok(false);
    }
    tracing::error!(job = %job.job_id, crashes = job.crashes, "a job is given up: the daemon died of it again and again");
    let why = format!("given up: Belay crashed {} times in a row while it was running", job.crashes);
    let change = change_to(service, job, &AttemptOutcome::failed(why), None);
    if let JobChanged::Now(job) = service.job_store.change(change).await? {
        metrics::count_job_state(job.state);
    }
    service.bell.work_ended(); // nothing supervises it
    Ok(true)
}

/// Returns whether the run of the current attempt has ended. Such a job does not fail because of its crashes.
async fn has_ended(service: &JobService, job: &JobRecord) -> Result<bool, StoreError> {
    let Some(known) = service.inputs.find(&key_of(job)).await? else { return Ok(false) };
    Ok(service.runs.run(known.run_id).await?.is_some_and(|run| run.status.is_end()))
}

impl JobScheduler {
    /// A scheduler that ends when `stop` is cancelled.
    pub fn new(service: Arc<JobService>, stop: CancellationToken) -> Self {
        Self { service, stop, at_work: JoinSet::new(), supervised: HashMap::new(), handed_in: Instant::now() }
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
        let mut changes = Wakes::new(service.hints.as_ref(), Topic::Jobs, AFTER_CHANGES);
        let mut nodes = Wakes::new(service.hints.as_ref(), Topic::Nodes, AFTER_NODES);
        let mut look = Look::Begin;
        while !self.stop.is_cancelled() {
            let pause = match look {
                Look::IfPending if !self.may_begin().await => LOOK,
                Look::Begin | Look::IfPending => self.begin_all().await,
            };
            look = Look::Begin;
            tokio::select! {
                biased; // the end first; then a free slot
                () = self.stop.cancelled() => {}
                Some(ended) = self.at_work.join_next_with_id() => self.ended(ended),
                () = service.bell.begin.notified() => {}
                () = nodes.next() => {
                    self.take_over().await;
                    look = Look::IfPending;
                }
                () = changes.next() => look = Look::IfPending,
                () = sleep(pause) => {}
            }
        }
        // Now, and again at the end: the running jobs are suspended even if the process is killed during the drain.
        self.suspend().await;
        while let Some(ended) = self.at_work.join_next_with_id().await {
            self.ended(ended);
        }
        self.suspend().await;
    }

    /// Takes over the jobs of ended nodes. Fails those that have reached `max_crashes`, and stops their runs, which a
    /// lane may have resumed meanwhile.
    async fn take_over(&mut self) {
        let service = self.service.clone();
        let owned = match service.attempts.reclaim(service.boot).await {
            Ok(owned) => owned,
            Err(error) => {
                return tracing::warn!(%error, "the jobs of ended nodes could not be looked for; trying again");
            }
        };
        let supervised: Vec<JobId> = self.supervised.values().copied().collect();
        for job in owned.into_iter().filter(|job| !supervised.contains(&job.job_id)) {
            match give_up_crashed(&service, &job).await {
                Ok(false) => self.carry(job),
                Ok(true) => stop(&service, &job).await,
                Err(error) => tracing::warn!(job = %job.job_id, %error, "a job was not taken over; trying again"),
            }
        }
        if self.handed_in.elapsed() >= LOOK {
            self.hand_in().await;
        }
    }

    /// Whether a job waits and a slot is free. A node of a cluster asks it each second, and [`JobAttempts::begin_next`]
    /// is a write for which the other nodes wait.
    ///
    /// [`JobAttempts::begin_next`]: belay_protocol::JobAttempts::begin_next
    async fn may_begin(&self) -> bool {
        match self.service.jobs.numbers().await {
            Ok(jobs) => {
                jobs.pending > 0 && jobs.in_progress + jobs.stuck < u64::from(self.service.config.caps().at_work)
            }
            Err(error) => {
                tracing::warn!(%error, "the numbers of jobs could not be read; trying again");
                false
            }
        }
    }

    /// Begins jobs until no slot is free or no job is queued. Returns the time until the next look.
    async fn begin_all(&mut self) -> Duration {
        let (service, caps) = (self.service.clone(), self.service.config.caps());
        // The thaw wakes the scheduler.
        while service.config.enabled && !self.stop.is_cancelled() && !service.freezer.holds_everything() {
            match service
                .attempts
                .begin_next(caps, service.freezer.held_jobs(), service.boot, service.clock.now())
                .await
            {
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
    async fn hand_in(&mut self) {
        self.handed_in = Instant::now();
        let service = &self.service;
        let filter = JobFilter { states: vec![JobState::Completed], limit: 1000, ..JobFilter::default() };
        let left = until_stored(&service.draining, || service.jobs.jobs(filter.clone())).await;
        for job in left.into_iter().flatten() {
            submit(service, &job).await;
        }
    }

    fn carry(&mut self, job: JobRecord) {
        let (id, span) = (job.job_id, tracing::info_span!("job", id = %job.job_id));
        let task = self.at_work.spawn(supervise(self.service.clone(), job).instrument(span));
        self.supervised.insert(task.id(), id);
    }

    fn ended(&mut self, ended: Result<(Id, ()), JoinError>) {
        match ended {
            Ok((task, ())) => {
                self.supervised.remove(&task);
            }
            Err(error) => {
                tracing::error!(%error, "the supervisor of a job crashed again while its crash was settled; the \
                                                   next start resumes it")
            }
        }
    }

    async fn suspend(&self) {
        if let Err(error) = self.service.attempts.suspend(self.service.boot).await {
            tracing::error!(%error, "jobs could not be suspended; each running job counts a crash at the next start");
        }
    }
}

#[cfg(test)]
mod tests;
