//! The beginning of a turn: a slot in the global lane, and the store's word that it begins.

use belay_agent_loop::{LoopError, LoopOutcome};
use belay_protocol::{CollectedStart, StopReason, StoreError};
use tokio::sync::OwnedSemaphorePermit;

use super::TurnJob;
use belay_run::live::LiveRun;

/// Why a turn has not begun.
pub(super) enum NotBegun {
    /// It was told to stop while it waited.
    Stopped(StopReason),
    /// The store did not take its beginning.
    Store(StoreError),
    /// The daemon ends before there was a slot for it.
    Draining,
}

impl NotBegun {
    /// The same as an outcome.
    pub(super) fn outcome(self) -> Result<LoopOutcome, LoopError> {
        match self {
            Self::Stopped(reason) => Ok(LoopOutcome::Stopped(reason.into())),
            Self::Store(error) => Err(LoopError::Store(error)),
            Self::Draining => Ok(LoopOutcome::Stopped(StopReason::Shutdown.into())),
        }
    }
}

/// Takes a slot in the global lane and notes the beginning in the store.
///
/// # Cancel safety
/// Dropped midway, the store may have the beginning, and the slot is given back.
pub(super) async fn enter(
    job: &mut TurnJob,
    permit: Option<OwnedSemaphorePermit>,
) -> Result<Option<OwnedSemaphorePermit>, NotBegun> {
    let stopped =
        |run: &LiveRun| NotBegun::Stopped(run.control.stopped_by().map_or(StopReason::UserStop, |cause| cause.reason));
    let permit = match permit {
        Some(permit) => Some(permit),
        None => tokio::select! {
            biased; // a run that was stopped while it waited never begins
            () = job.run.control.cancel.cancelled() => return Err(stopped(&job.run)),
            () = job.services.draining.cancelled() => return Err(NotBegun::Draining),
            // The semaphore is never closed; without a permit the turn would still be right, only wider.
            permit = job.services.permits.clone().acquire_owned() => permit.ok(),
        },
    };
    job.slot.seat = None;
    if job.progress.begun_at.is_none() {
        let (now, runs) = (job.services.clock.now(), &job.services.store.run_store);
        if let Some(gathered) = &mut job.gathered {
            // The last moment: whoever is stopped from now on has joined, and whoever was before has not.
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
