//! Services that jobs use.

use std::sync::Arc;

use belay_protocol::{BootId, Clock, EventLog, JobStore, RoutineStore, RunProcesses, RunReader, ThreadStore};
use tokio_util::sync::CancellationToken;

use super::config::JobsConfig;
use super::scheduler::Wakeup;
use crate::submitter::Submitter;
use belay_run::rights::AccessPolicy;

/// Services for creating jobs, running them and answering requests about them.
pub struct JobService {
    /// `[jobs]`
    pub config: JobsConfig,
    /// Where jobs are kept.
    pub jobs: Arc<dyn JobStore>,
    /// Where ended runs are read.
    pub runs: Arc<dyn RunReader>,
    /// Where conversations are kept.
    pub threads: Arc<dyn ThreadStore>,
    /// Where events are recorded.
    pub events: Arc<dyn EventLog>,
    /// Says what set off the routine that made a job.
    pub routines: Arc<dyn RoutineStore>,
    /// What ends the processes of a run.
    pub processes: Arc<dyn RunProcesses>,
    /// Tells the current time.
    pub clock: Arc<dyn Clock>,
    /// This start of the daemon.
    pub boot: BootId,
    /// Submits attempts as messages.
    pub submitter: Submitter,
    /// Wakes the job scheduler.
    pub bell: Wakeup,
    /// Decides which principals may use which channel.
    pub access: Arc<AccessPolicy>,
    /// Whether a job may run in a worker.
    pub has_workers: bool,
    /// Cancelled when the drain begins.
    pub draining: CancellationToken,
}
