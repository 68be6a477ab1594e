//! The beginning of a turn: waits for a permit to run, and records the beginning in the store.

use belay_agent_loop::{LoopError, LoopOutcome};
use belay_crash_point::crash_point;
use belay_protocol::{CollectedStart, RunStatus, StopReason, StoreError, UnixMillis};
use tokio::sync::OwnedSemaphorePermit;

use super::TurnJob;
use crate::agent_services::AgentServices;
use belay_run::live::LiveRun;
use belay_run::store_wait::{Outage, StoreWait};

/// The reason why a turn has not begun.
pub(super) enum NotBegun {
    /// It was told to stop while it waited.
    Stopped(StopReason),
    /// The store failed to record its beginning.
    Store(StoreError),
    /// The daemon shut down before a permit was free.
    Draining,
}

impl NotBegun {
    /// Converts the reason into an outcome.
    pub(super) fn outcome(self) -> Result<LoopOutcome, LoopError> {
        match self {
            Self::Stopped(reason) => Ok(LoopOutcome::Stopped(reason.into())),
            Self::Store(error) => Err(LoopError::Store(error)),
            Self::Draining => Ok(LoopOutcome::Stopped(StopReason::Shutdown.into())),
        }
    }
}

/// Waits for a permit to run, and for the thaw if the run is frozen.
async fn permit_to_run(services: &AgentServices, run: &LiveRun) -> Option<OwnedSemaphorePermit> {
    loop {
        services.run.freezer.thawed(&run.origin).await;
        // The semaphore is never closed. Without a permit, only the global limit would be exceeded.
        let permit = services.permits.clone().acquire_owned().await.ok();
        if services.run.freezer.holds(&run.origin).is_none() {
            return permit;
        }
    }
}

/// Waits for a permit to run and records the beginning of the turn in the store. While the store does not answer, that is
/// repeated.
///
/// # Cancel safety
/// If the future is dropped midway, the store may have recorded the beginning. The permit is released.
pub(super) async fn enter(
    job: &mut TurnJob,
    permit: Option<OwnedSemaphorePermit>,
    wait: &StoreWait,
) -> Result<Option<OwnedSemaphorePermit>, NotBegun> {
    let (mut outage, mut free) = (Outage::default(), permit);
    loop {
        // A freeze that began during an outage holds the run as any other one.
        let permit = permit_of(job, free.take()).await?;
        if job.progress.begun_at.is_some() {
            return Ok(permit);
        }
        match Box::pin(record_begin(job, outage.has_begun())).await {
            Ok(at) => {
                crash_point!("run.started");
                job.progress.begin(at);
                return Ok(permit);
            }
            Err(error) => wait.again(&mut outage, error).await.map_err(NotBegun::Store)?,
        }
        free = permit;
    }
}

/// This permit, or the next one that is free; not before the thaw of a frozen run.
async fn permit_of(
    job: &mut TurnJob,
    permit: Option<OwnedSemaphorePermit>,
) -> Result<Option<OwnedSemaphorePermit>, NotBegun> {
    let stopped =
        |run: &LiveRun| NotBegun::Stopped(run.control.stopped_by().map_or(StopReason::UserStop, |cause| cause.reason));
    let permit = match permit.filter(|_| job.services.run.freezer.holds(&job.run.origin).is_none()) {
        Some(permit) => Some(permit),
        None => tokio::select! {
            biased; // a run that was stopped while it waited never begins
            () = job.run.control.cancel.cancelled() => return Err(stopped(&job.run)),
            () = job.services.draining.cancelled() => return Err(NotBegun::Draining),
            permit = permit_to_run(&job.services, &job.run) => permit,
        },
    };
    job.slot.wait_permit = None;
    Ok(permit)
}

/// Records the beginning of a turn, and returns its time. `again`: an earlier attempt has failed.
async fn record_begin(job: &mut TurnJob, again: bool) -> Result<UnixMillis, StoreError> {
    let (now, run, runs) = (job.services.clock.now(), job.run.id, &job.services.store.run_store);
    if let Some(gathered) = &mut job.gathered
        && !again
    {
        // This is the last moment to leave out stopped messages. A message that is stopped later has joined already.
        job.joining.give_back(&gathered.leave_stopped());
    }
    crash_point!("run.before-start");
    let Some(gathered) = job.gathered.as_ref().filter(|gathered| !gathered.others.is_empty()) else {
        // Relaxed: if it has failed, it was not done.
        return runs.start_run(&job.lease, run, now).await.map(|()| now);
    };
    let (message, joined) = (gathered.message(), gathered.joined());
    let (text, provenance) = (message.text().to_owned(), message.provenance);
    let done = runs.start_together(&job.lease, CollectedStart { run, text, provenance, joined, at: now }).await;
    match done {
        Ok(()) => Ok(now),
        // The answer to an earlier attempt may have been lost: then the run is not queued any more.
        Err(error @ StoreError::NotFound(_)) if again => {
            let record = job.services.store.runs.run(run).await?;
            let begun = record.filter(|record| record.status == RunStatus::Running);
            begun.and_then(|record| record.started_at).ok_or(error)
        }
        Err(error) => Err(error),
    }
}
