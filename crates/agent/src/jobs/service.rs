//! What jobs use.

use std::sync::Arc;

use belay_protocol::{BootId, Clock, EventLog, JobStore, RoutineStore, RunProcesses, RunReader, ThreadStore};
use tokio_util::sync::CancellationToken;

use super::config::JobsConfig;
use super::desk::Bell;
use crate::inlet::Inlet;
use crate::rights::AccessPolicy;

/// What making jobs, carrying them out and answering requests about them use.
pub(crate) struct JobService {
    /// `[jobs]`
    pub(crate) config: JobsConfig,
    pub(crate) jobs: Arc<dyn JobStore>,
    pub(crate) runs: Arc<dyn RunReader>,
    pub(crate) threads: Arc<dyn ThreadStore>,
    pub(crate) events: Arc<dyn EventLog>,
    /// Says what set off the routine that made a job.
    pub(crate) routines: Arc<dyn RoutineStore>,
    pub(crate) processes: Arc<dyn RunProcesses>,
    pub(crate) clock: Arc<dyn Clock>,
    /// This start of the daemon.
    pub(crate) boot: BootId,
    /// Where attempts are put in as messages.
    pub(crate) inlet: Inlet,
    /// Wakes the part that begins jobs.
    pub(crate) bell: Bell,
    /// Who is let in through which channel.
    pub(crate) access: Arc<AccessPolicy>,
    /// Whether a job may be carried out in a worker.
    pub(crate) has_workers: bool,
    /// Cancelled when the drain begins.
    pub(crate) draining: CancellationToken,
}
