//! Services shared by the outer loop, its lanes and their turns: the ports, and values built from them. Immutable after
//! the start of the agent, except for values that a reload swaps.

use std::sync::Arc;

use arc_swap::ArcSwap;
use belay_protocol::{
    Archive, BootId, Clock, ContextSource, EventLog, GateStore, Inbound, JobStore, Outbox, OutputKeeper, RoutineStore,
    RunProcesses, RunReader, SecretVault, SpendLedger, ThreadStore, ToolSwitches, UnixMillis,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::queue::QueueConfig;
use crate::sessions::Resets;
use belay_automation::jobs::JobService;
use belay_automation::routines::RoutineService;
use belay_delegates::plan::PlanKit;
use belay_delegates::subagent::ChildServices;
use belay_run::approvals::ApprovalsConfig;
use belay_run::chunking::StreamingConfig;
use belay_run::hooks::HookChain;
use belay_run::prompt::BriefingSource;
use belay_run::rights::Channels;
use belay_run::services::RunServices;

/// Number of sessions that may wait with a task for their next turn. 128: twice the default limit of turns, so that a
/// session is ready when a turn ends. Each may hold a conversation and a message in memory.
pub(crate) const SEATS: usize = 128;

/// The ports of the store that the agent uses.
#[derive(Clone)]
pub struct StorePorts {
    /// Stores sessions, threads and runs.
    pub threads: Arc<dyn ThreadStore>,
    /// Reads runs.
    pub runs: Arc<dyn RunReader>,
    /// Deletes sessions.
    pub archive: Arc<dyn Archive>,
    /// Stores events.
    pub events: Arc<dyn EventLog>,
    /// Stores undelivered replies.
    pub outbox: Arc<dyn Outbox>,
    /// Stores reservations and spending.
    pub spend: Arc<dyn SpendLedger>,
    /// Stores approval requests, and the grants that result from them.
    pub gates: Arc<dyn GateStore>,
    /// Stores secrets that people entered.
    pub vault: Arc<dyn SecretVault>,
    /// Stores jobs.
    pub jobs: Arc<dyn JobStore>,
    /// Stores routines and their runs.
    pub routines: Arc<dyn RoutineStore>,
    /// Stores disabled tools.
    pub switches: Arc<dyn ToolSwitches>,
}

/// Services shared by the outer loop, its lanes and their turns.
pub(crate) struct AgentServices {
    /// Services that every run uses.
    pub(crate) run: Arc<RunServices>,
    /// Services for runs that start other runs.
    pub(crate) children: Arc<ChildServices>,
    /// Services for plans.
    pub(crate) plans: Arc<PlanKit>,
    pub(crate) jobs: Arc<JobService>,
    pub(crate) routines: Arc<RoutineService>,
    /// Sources of briefings.
    pub(crate) briefings: BriefingSource,
    pub(crate) queue: QueueConfig,
    /// Swapped as a whole when the settings are reloaded.
    pub(crate) approvals: ArcSwap<ApprovalsConfig>,
    pub(crate) streaming: StreamingConfig,
    /// Rules for starting a new conversation automatically.
    pub(crate) resets: Resets,
    /// Whether the first answer of such a conversation mentions it.
    pub(crate) announce_reset: bool,
    /// Stores outputs that are too long to be shown whole.
    pub(crate) outputs: Option<Arc<dyn OutputKeeper>>,
    pub(crate) processes: Arc<dyn RunProcesses>,
    pub(crate) hooks: Arc<HookChain>,
    pub(crate) channels: Channels,
    pub(crate) store: StorePorts,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) boot: BootId,
    pub(crate) version: String,
    pub(crate) started_at: UnixMillis,
    /// The global limit of turns: one permit for each running turn.
    pub(crate) permits: Arc<Semaphore>,
    /// One permit for each session that waits with a task for its next turn; the other sessions are parked.
    pub(crate) seats: Arc<Semaphore>,
    /// Reads the skills of the workspace.
    pub(crate) context: Arc<dyn ContextSource>,
    /// Cancelled when the drain begins: lanes finish their turn and start no other.
    pub(crate) draining: CancellationToken,
}

impl AgentServices {
    /// Whether a message comes from a person. A message through an unknown channel counts as one.
    pub(crate) fn is_spoken(&self, inbound: &Inbound) -> bool {
        !inbound.work.is_autonomous()
            && self.channels.get(&inbound.channel).is_none_or(|channel| channel.carries_people())
    }
}
