//! Services that routines use.

use std::sync::Arc;

use belay_protocol::{
    BootId, Clock, ContextSource, ConversationReader, Hints, InputReader, RoutineReader, RoutineRunStore,
    RoutineSchedule, RoutineStore, RunReader,
};
use tokio_util::sync::CancellationToken;

use super::heartbeat::Heartbeat;
use super::registry::RoutineRegistry;
use crate::jobs::JobService;
use crate::submitter::Submitter;
use belay_run::rights::{AccessPolicy, Channels};
use belay_run::services::RunServices;

/// Services for changing routines, claiming their routine runs and executing them.
pub struct RoutineService {
    /// State that the engine shares with the sources of requests.
    pub registry: RoutineRegistry,
    /// The settings of the heartbeat, parsed.
    pub heartbeat: Heartbeat,
    /// Reads routines and routine runs.
    pub routines: Arc<dyn RoutineReader>,
    /// Changes routines.
    pub routine_store: Arc<dyn RoutineStore>,
    /// Stores the scheduled times of routines.
    pub schedule: Arc<dyn RoutineSchedule>,
    /// Claims and settles routine runs.
    pub routine_run_store: Arc<dyn RoutineRunStore>,
    /// Reads runs.
    pub runs: Arc<dyn RunReader>,
    /// Tells whether people are present.
    pub conversations: Arc<dyn ConversationReader>,
    /// Reads accepted messages: whether a routine run has a run.
    pub inputs: Arc<dyn InputReader>,
    /// Runs the jobs of routines.
    pub jobs: Arc<JobService>,
    /// Tells the current time.
    pub clock: Arc<dyn Clock>,
    /// This start of the daemon.
    pub boot: BootId,
    /// Tells what other nodes change; `None`: the daemon uses its database alone.
    pub hints: Option<Arc<dyn Hints>>,
    /// Submits the messages of routine runs.
    pub submitter: Submitter,
    /// Reads files of the workspace.
    pub context: Arc<dyn ContextSource>,
    /// The configured channels, by name.
    pub channels: Channels,
    /// Decides which principals may use which channel.
    pub access: Arc<AccessPolicy>,
    /// Tells whether the budget allows a heartbeat.
    pub run: Arc<RunServices>,
    /// Cancelled when the drain begins.
    pub draining: CancellationToken,
}
