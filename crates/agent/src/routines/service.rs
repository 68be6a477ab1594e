//! What routines use.

use std::sync::Arc;

use belay_protocol::{BootId, Clock, ContextSource, RoutineStore, RunReader, ThreadStore};
use tokio_util::sync::CancellationToken;

use super::board::Board;
use super::heartbeat::Heartbeat;
use crate::inlet::Inlet;
use crate::jobs::JobService;
use crate::rights::{AccessPolicy, Channels};
use crate::services::RunServices;

/// What changing routines, claiming their firings and carrying them out use.
pub(crate) struct RoutineService {
    /// What the engine shares.
    pub(crate) board: Board,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) routines: Arc<dyn RoutineStore>,
    pub(crate) runs: Arc<dyn RunReader>,
    pub(crate) threads: Arc<dyn ThreadStore>,
    /// Carries out the routines that make jobs.
    pub(crate) jobs: Arc<JobService>,
    pub(crate) clock: Arc<dyn Clock>,
    /// This start of the daemon.
    pub(crate) boot: BootId,
    /// Where firings are put in as messages.
    pub(crate) inlet: Inlet,
    /// Reads files of the workspace.
    pub(crate) context: Arc<dyn ContextSource>,
    pub(crate) channels: Channels,
    /// Who is let in through which channel.
    pub(crate) access: Arc<AccessPolicy>,
    /// Says whether there is money for a heartbeat.
    pub(crate) run: Arc<RunServices>,
    /// Cancelled when the drain begins.
    pub(crate) draining: CancellationToken,
}
