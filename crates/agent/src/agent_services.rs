//! What the outer loop, its lanes and their turns share, immutable once the agent has started: the ports, and what was built
//! from them once.

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

/// Sessions that wait for a place in the global lane with a task of their own. 128: twice the places there are by default, so
/// that one is there when a place becomes free; each may hold a conversation and a message in memory.
pub(crate) const SEATS: usize = 128;

/// The ports of persistence that the agent uses.
#[derive(Clone)]
pub struct StorePorts {
    /// Sessions, threads, runs.
    pub threads: Arc<dyn ThreadStore>,
    /// Reads runs.
    pub runs: Arc<dyn RunReader>,
    /// Deletes sessions.
    pub archive: Arc<dyn Archive>,
    /// Facts.
    pub events: Arc<dyn EventLog>,
    /// Undelivered replies.
    pub outbox: Arc<dyn Outbox>,
    /// Money.
    pub spend: Arc<dyn SpendLedger>,
    /// Questions to people, and what they granted.
    pub gates: Arc<dyn GateStore>,
    /// Secrets that people gave.
    pub vault: Arc<dyn SecretVault>,
    /// Work that outlives the turn that asked for it.
    pub jobs: Arc<dyn JobStore>,
    /// Rules that start work, and what became of it.
    pub routines: Arc<dyn RoutineStore>,
    /// Tools that are switched off.
    pub switches: Arc<dyn ToolSwitches>,
}

/// What the outer loop, its lanes and their turns share.
pub(crate) struct AgentServices {
    /// What each run uses.
    pub(crate) run: Arc<RunServices>,
    /// What runs start other runs with.
    pub(crate) children: Arc<ChildServices>,
    /// What plans use.
    pub(crate) plans: Arc<PlanKit>,
    pub(crate) jobs: Arc<JobService>,
    pub(crate) routines: Arc<RoutineService>,
    /// Where the surroundings of runs are read.
    pub(crate) briefings: BriefingSource,
    pub(crate) queue: QueueConfig,
    /// Swapped as a whole when the settings are reloaded.
    pub(crate) approvals: ArcSwap<ApprovalsConfig>,
    pub(crate) streaming: StreamingConfig,
    /// When conversations begin anew.
    pub(crate) resets: Resets,
    /// Whether people are told of it.
    pub(crate) announce_reset: bool,
    /// Keeps outputs that are too long to be shown whole.
    pub(crate) outputs: Option<Arc<dyn OutputKeeper>>,
    pub(crate) processes: Arc<dyn RunProcesses>,
    pub(crate) hooks: Arc<HookChain>,
    pub(crate) channels: Channels,
    pub(crate) store: StorePorts,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) boot: BootId,
    pub(crate) version: String,
    pub(crate) started_at: UnixMillis,
    /// The global lane: one permit for each turn at work.
    pub(crate) permits: Arc<Semaphore>,
    /// One permit for each session that waits for a place with a task of its own; the others are parked.
    pub(crate) seats: Arc<Semaphore>,
    /// Knows the skills of the workspace.
    pub(crate) context: Arc<dyn ContextSource>,
    /// Cancelled when the drain begins: lanes finish their turn and start no other.
    pub(crate) draining: CancellationToken,
}

impl AgentServices {
    /// Whether a message comes from a person; what comes through a channel that is not known is taken to.
    pub(crate) fn is_spoken(&self, inbound: &Inbound) -> bool {
        !inbound.work.is_autonomous()
            && self.channels.get(&inbound.channel).is_none_or(|channel| channel.carries_people())
    }
}
