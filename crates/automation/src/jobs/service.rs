//! Services that jobs use.

use std::sync::Arc;

use belay_protocol::{
    BootId, Clock, Hints, InputReader, JobAttempts, JobReader, JobStore, RoutineReader, RunProcesses, RunReader,
};
use tokio_util::sync::CancellationToken;

use super::config::JobsConfig;
use super::scheduler::Wakeup;
use crate::submitter::Submitter;
use belay_run::freeze::Freezer;
use belay_run::rights::AccessPolicy;

/// Services for creating jobs, running them and answering requests about them.
pub struct JobService {
    /// `[jobs]`
    pub config: JobsConfig,
    /// Reads jobs.
    pub jobs: Arc<dyn JobReader>,
    /// Creates and changes jobs.
    pub job_store: Arc<dyn JobStore>,
    /// Begins attempts of jobs.
    pub attempts: Arc<dyn JobAttempts>,
    /// Reads runs.
    pub runs: Arc<dyn RunReader>,
    /// Reads accepted messages: whether an attempt has a run.
    pub inputs: Arc<dyn InputReader>,
    /// Reads the routine run that created a job.
    pub routines: Arc<dyn RoutineReader>,
    /// Ends the processes of a run.
    pub processes: Arc<dyn RunProcesses>,
    /// Tells the current time.
    pub clock: Arc<dyn Clock>,
    /// This start of the daemon.
    pub boot: BootId,
    /// Tells what other nodes change; `None`: the daemon uses its database alone.
    pub hints: Option<Arc<dyn Hints>>,
    /// Submits attempts as messages.
    pub submitter: Submitter,
    /// Wakes the job scheduler.
    pub bell: Wakeup,
    /// Decides which principals may use which channel.
    pub access: Arc<AccessPolicy>,
    /// Whether a job may run in a worker.
    pub has_workers: bool,
    /// The freezes in force: no job begins while everything is frozen.
    pub freezer: Arc<Freezer>,
    /// Cancelled when the drain begins.
    pub draining: CancellationToken,
}
