//! The beginning of a turn: waits for a permit to run, and records the beginning in the store.

use belay_agent_loop::{LoopError, LoopOutcome};
use belay_protocol::{CollectedStart, StopReason, StoreError};
use tokio::sync::OwnedSemaphorePermit;

use super::TurnJob;
use crate::agent_services::AgentServices;
use belay_run::live::LiveRun;

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

/// Waits for a permit to run and records the beginning of the turn in the store.
///
/// # Cancel safety
/// If the future is dropped midway, the store may have recorded the beginning. The permit is released.
pub(super) async fn enter(
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
    if job.progress.begun_at.is_none() {
        let (now, runs) = (job.services.clock.now(), &job.services.store.run_store);
        if let Some(gathered) = &mut job.gathered {
            // This is the last moment to leave out stopped messages. A message that is stopped later has joined
            // already.
            job.joining.give_back(&gathered.leave_stopped());
        }
        let begun = match job.gathered.as_ref().filter(|gathered| !gathered.others.is_empty()) {
            None => runs.start_run(&job.lease, job.run.id, now).await,
            Some(gathered) => {
                let (run, message, joined) = (job.run.id, gathered.message(), gathered.joined());
                let (text, provenance) = (message.text().to_owned(), message.provenance);
                runs.start_together(&job.lease, CollectedStart { run, text, provenance, joined, at: now }).await
            }
        };
        begun.map_err(NotBegun::Store)?;
        job.progress.begin(now);
    }
    Ok(permit)
}
