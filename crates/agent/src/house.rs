//! What every lane shares, immutable once the agent has started: the ports and what was built from them once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use belay_agent_loop::{Reasoning, StopRules};
use belay_protocol::inbound::ModelTrouble;
use belay_protocol::{
    Archive, BootId, BoundHook, Channel, ChannelId, Clock, ContextSource, EventKind, EventLog, GateStore, JobStore,
    ModelError, ModelErrorKind, ModelProvider, NewEvent, Outbox, OutputKeeper, Purpose, RoutineStore, RunId,
    RunProcesses, RunReader, SecretVault, SessionKey, SpendLedger, ThreadStore, Tool, ToolHealthConfig, ToolSet,
    ToolSwitches, UnixMillis,
};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::approvals::{ApprovalsConfig, Policy};
use crate::chosen;
use crate::chunking::StreamingConfig;
use crate::compaction::CompactionConfig;
use crate::config::{AgentConfig, LimitsConfig};
use crate::container::{RunInWorker, WorkersParts};
use crate::cost_guard::CostGuard;
use crate::effect_gate::{EffectGate, GatePorts};
use crate::error::AgentError;
use crate::hooks::HookChain;
use crate::inlet::Inlet;
use crate::jobs::{Bell, CreateJob, JobsConfig};
use crate::plan::{self, PlanKit};
use crate::post::SendMessage;
use crate::prompt::{self, Briefing, PromptBook, Snapshots};
use crate::queue::QueueConfig;
use crate::rights::{Absent, AccessPolicy, Channels};
use crate::routines::heartbeat::{Heartbeat, HeartbeatConfig};
use crate::routines::{Board, RoutineTool, RoutinesConfig};
use crate::sessions::{Resets, SessionsConfig};
use crate::subagent::{Goal, SpawnSubagent, SubagentLanes};
use crate::terminate::Terminate;
use crate::tool_health::{Health, HealthPorts};

/// Everything an agent is made of.
pub struct AgentParts {
    /// `[agent]`
    pub config: AgentConfig,
    /// `[limits]`
    pub limits: LimitsConfig,
    /// The rules for stopping: `[stops]`, and the part of `[limits]` that is about one run.
    pub rules: Arc<StopRules>,
    /// `[queue]`
    pub queue: QueueConfig,
    /// `[approvals]`
    pub approvals: ApprovalsConfig,
    /// `[compaction]`
    pub compaction: CompactionConfig,
    /// `[streaming]`
    pub streaming: StreamingConfig,
    /// `[sessions]`
    pub sessions: SessionsConfig,
    /// `[routines]`
    pub routines: RoutinesConfig,
    /// `[heartbeat]`
    pub heartbeat: HeartbeatConfig,
    /// `[jobs]`
    pub jobs: JobsConfig,
    /// `[tools.health]`
    pub health: ToolHealthConfig,
    /// Processes of runs.
    pub processes: Arc<dyn RunProcesses>,
    /// The operator's hooks, at their points.
    pub hooks: Vec<BoundHook>,
    /// Keeps outputs that are too long to be shown whole.
    pub outputs: Option<Arc<dyn OutputKeeper>>,
    /// The model.
    pub model: Arc<dyn ModelProvider>,
    /// The tools that the model is offered.
    pub tools: Vec<Arc<dyn Tool>>,
    /// The channels, started by the agent.
    pub channels: Vec<Arc<dyn Channel>>,
    /// Who is let in through channels that are switched off: for work that was asked for through them.
    pub absent: Absent,
    /// Persistence.
    pub store: StorePorts,
    /// The date.
    pub clock: Arc<dyn Clock>,
    /// This start of the daemon.
    pub boot: BootId,
    /// The program's version, for `/version` and the status.
    pub version: String,
    /// Most tokens of one answer.
    pub max_tokens: u32,
    /// Requests per logical model call.
    pub max_attempts: u32,
    /// Set while messages are taken.
    pub ready: watch::Sender<bool>,
    /// What workers are started with; `None`: there are none.
    pub workers: Option<WorkersParts>,
    /// What runs are told of their surroundings.
    pub context: Arc<dyn ContextSource>,
}

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

/// Sessions that wait for a place in the global lane with a task of their own. 128: twice the places there are by default, so
/// that one is there when a place becomes free; each may hold a conversation and a message in memory.
pub(crate) const SEATS: usize = 128;

/// The shared part.
pub(crate) struct House {
    pub(crate) config: AgentConfig,
    pub(crate) queue: QueueConfig,
    /// Swapped as a whole when the settings are reloaded.
    pub(crate) approvals: ArcSwap<ApprovalsConfig>,
    pub(crate) compaction: CompactionConfig,
    pub(crate) streaming: StreamingConfig,
    /// When conversations begin anew.
    pub(crate) resets: Resets,
    /// Whether people are told of it.
    pub(crate) announce_reset: bool,
    /// What the engine of routines shares.
    pub(crate) routines: Board,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) jobs: JobsConfig,
    /// Wakes whoever begins jobs.
    pub(crate) bell: Bell,
    /// Where the agent's own parts put messages in.
    pub(crate) inlet: Inlet,
    /// Keeps outputs that are too long to be shown whole.
    pub(crate) outputs: Option<Arc<dyn OutputKeeper>>,
    pub(crate) processes: Arc<dyn RunProcesses>,
    pub(crate) hooks: Arc<HookChain>,
    pub(crate) model: Arc<dyn ModelProvider>,
    pub(crate) reasoning: Arc<Reasoning>,
    pub(crate) max_tokens: u32,
    /// What plans use.
    pub(crate) plans: PlanKit,
    pub(crate) max_attempts: u32,
    /// Swapped as a whole when the settings are reloaded; a run keeps those that its attempt began with.
    rules: ArcSwap<StopRules>,
    pub(crate) gate: EffectGate,
    /// How tools get on.
    pub(crate) health: Arc<Health>,
    pub(crate) cost: CostGuard,
    pub(crate) channels: Channels,
    /// Who is let in through which channel.
    pub(crate) access: AccessPolicy,
    pub(crate) store: StorePorts,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) boot: BootId,
    pub(crate) version: String,
    pub(crate) started_at: UnixMillis,
    /// The global lane: one permit for each turn at work.
    pub(crate) permits: Arc<Semaphore>,
    /// One permit for each session that waits for a place with a task of its own; the others are parked.
    pub(crate) seats: Arc<Semaphore>,
    /// The lanes of subagents.
    pub(crate) subagents: SubagentLanes,
    /// What the last model call failed with, until one succeeds. Held for an assignment, never across an await.
    model_trouble: Mutex<Option<ModelTrouble>>,
    /// What runs are told of their surroundings.
    pub(crate) context: Arc<dyn ContextSource>,
    /// The skills that conversations began with.
    pub(crate) snapshots: Snapshots,
    /// Ways of asking, for what runs are told of their surroundings.
    prompts: PromptBook,
    /// What workers are started with, where they can be.
    pub(crate) workers: Option<WorkersParts>,
    /// Cancelled when the drain begins: lanes finish their turn and start no other.
    pub(crate) draining: CancellationToken,
}

impl House {
    pub(crate) async fn build(parts: AgentParts, inlet: Inlet) -> Result<(Self, watch::Sender<bool>), AgentError> {
        let mut tools = parts.tools;
        if parts.config.subagents.enabled {
            tools.push(Arc::new(SpawnSubagent::new(
                &parts.config.subagents,
                parts.rules.closing_turn().unwrap_or_default(),
            )));
        }
        let workers = parts.workers.filter(|workers| workers.config.enabled).filter(|workers| {
            let ready = workers.host.ready();
            if let Err(why) = &ready {
                tracing::warn!(why, "no workers can be started, so run_in_worker is not offered");
            }
            ready.is_ok()
        });
        if let Some(workers) = &workers {
            tools.push(Arc::new(RunInWorker::new(&workers.config)));
        }
        // Executors may have subagents work for them, and always have a terminate of their own.
        let plans = PlanKit::build(&parts.config, &tools, parts.max_tokens, parts.max_attempts)?;
        if parts.config.send_message {
            tools.push(Arc::new(SendMessage::new()));
        }
        if parts.jobs.enabled {
            tools.push(Arc::new(CreateJob::new()));
        }
        if parts.routines.enabled {
            tools.push(Arc::new(RoutineTool::new()));
        }
        if parts.config.terminate {
            tools.push(Arc::new(Terminate::new()));
        }
        // Every tool that any run can have: who works by itself may always terminate, and a plan has its own.
        let own = [Arc::new(Terminate::new()) as Arc<dyn Tool>, plan::tool()];
        let hooks = Arc::new(HookChain::new(parts.hooks, parts.clock.clone())?);
        let every = ToolSet::new(tools.iter().cloned().chain(own).collect());
        let ports = HealthPorts {
            store: parts.store.switches.clone(),
            events: parts.store.events.clone(),
            clock: parts.clock.clone(),
        };
        let health = Arc::new(Health::load(&parts.health, &every, ports).await?);
        let ports = GatePorts {
            gates: parts.store.gates.clone(),
            vault: parts.store.vault.clone(),
            outputs: parts.outputs.clone(),
            hooks: hooks.clone(),
            health: health.clone(),
        };
        let policy = Policy::compile(&parts.approvals);
        let gate = EffectGate::new(&every, policy, ports)?;
        let tools = Arc::new(ToolSet::new(tools));
        let cost = CostGuard::load(
            parts.store.spend.clone(),
            parts.clock.clone(),
            parts.limits.per_day(),
            parts.model.dearest(),
        )
        .await?;
        let channels: HashMap<_, _> =
            parts.channels.into_iter().map(|channel| (channel.id().clone(), channel)).collect();
        let channels = Arc::new(channels);
        let heartbeat = heartbeat_of(parts.heartbeat, &channels, &*parts.model).map_err(AgentError::Heartbeat)?;
        let access = AccessPolicy::new(channels.clone(), parts.absent);
        let prompt = |tools| prompt::join(&prompt::parts(&parts.config, &Briefing::default(), tools, None));
        let (with_tools, without_tools) = (prompt(Some(&*tools)), prompt(None));
        let house = Self {
            reasoning: Arc::new(Reasoning::new(with_tools, without_tools, tools, parts.max_tokens, parts.max_attempts)),
            max_tokens: parts.max_tokens,
            plans,
            max_attempts: parts.max_attempts,
            permits: Arc::new(Semaphore::new(parts.config.max_concurrent_turns)),
            seats: Arc::new(Semaphore::new(SEATS)),
            subagents: SubagentLanes::new(&parts.config.subagents),
            config: parts.config,
            queue: parts.queue,
            approvals: ArcSwap::from_pointee(parts.approvals),
            compaction: parts.compaction,
            streaming: parts.streaming,
            resets: Resets::of(&parts.sessions),
            announce_reset: parts.sessions.announce_reset,
            routines: Board::new(parts.routines),
            heartbeat,
            jobs: parts.jobs,
            bell: Bell::default(),
            inlet,
            outputs: parts.outputs,
            processes: parts.processes,
            hooks,
            model: parts.model,
            rules: ArcSwap::new(parts.rules),
            gate,
            health,
            cost,
            channels,
            access,
            store: parts.store,
            started_at: parts.clock.now(),
            clock: parts.clock,
            boot: parts.boot,
            version: parts.version,
            model_trouble: Mutex::new(None),
            workers,
            context: parts.context,
            snapshots: Snapshots::default(),
            prompts: PromptBook::default(),
            draining: CancellationToken::new(),
        };
        Ok((house, parts.ready))
    }

    /// The rules for stopping that a run begins with now.
    pub(crate) fn rules(&self) -> Arc<StopRules> {
        self.rules.load_full()
    }

    /// Begins runs with these rules from now on.
    pub(crate) fn adopt_rules(&self, rules: Arc<StopRules>) {
        self.rules.store(rules);
    }

    /// The way of asking in a conversation's run with these surroundings; one with a goal has the goal's tools besides all
    /// others, and is made for this run alone.
    pub(crate) fn reasoning_for(&self, goal: Option<&Goal>, briefing: &Briefing) -> Arc<Reasoning> {
        let Some(goal) = goal else {
            return self.prompts.get(briefing, || self.ask_with(briefing, self.reasoning.tools().clone(), None));
        };
        let tools = self.reasoning.tools().iter().cloned().chain(goal.tools()).collect();
        Arc::new(self.ask_with(briefing, Arc::new(ToolSet::new(tools)), Some(&goal.teaching())))
    }

    /// The way of asking in a run with these tools. `outputs`: what is said of its end in the place of how a conversation's turn
    /// ends.
    pub(crate) fn ask_with(&self, briefing: &Briefing, tools: Arc<ToolSet>, outputs: Option<&str>) -> Reasoning {
        let prompt = |tools| prompt::join(&prompt::parts(&self.config, briefing, tools, outputs));
        let (with_tools, without_tools) = (prompt(Some(&*tools)), prompt(None));
        Reasoning::new(with_tools, without_tools, tools, self.max_tokens, self.max_attempts)
    }

    /// Whether people speak through a channel; one that is not known is taken to be theirs.
    pub(crate) fn carries_people(&self, channel: &ChannelId) -> bool {
        !Purpose::of(channel).is_autonomous()
            && self.channels.get(channel).is_none_or(|channel| channel.carries_people())
    }

    /// Notes that the model answers.
    pub(crate) fn model_answered(&self) {
        *self.model_trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Notes that the model does not. One that refuses a request has answered: it is not away.
    pub(crate) fn model_failed(&self, error: &ModelError) {
        if matches!(error.kind, ModelErrorKind::ContextTooLong | ModelErrorKind::BadRequest) {
            return self.model_answered();
        }
        let trouble =
            ModelTrouble { since: self.clock.now(), kind: error.kind.word().into(), requests: error.attempts };
        let mut slot = self.model_trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let since = slot.as_ref().map_or(trouble.since, |earlier| earlier.since);
        *slot = Some(ModelTrouble { since, ..trouble });
    }

    /// What the last model call failed with.
    pub(crate) fn model_trouble(&self) -> Option<ModelTrouble> {
        self.model_trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A fact about a run, dated now.
    pub(crate) fn event(&self, session: &SessionKey, run: RunId, kind: EventKind) -> NewEvent {
        NewEvent { at: self.clock.now(), session: Some(session.clone()), run_id: Some(run), kind }
    }
}

/// The heartbeat that these settings ask for.
///
/// # Errors
/// What it would need and there is not, with its setting in front.
fn heartbeat_of(
    config: HeartbeatConfig,
    channels: &HashMap<ChannelId, Arc<dyn Channel>>,
    model: &dyn ModelProvider,
) -> Result<Heartbeat, String> {
    let heartbeat = Heartbeat::of(config)?;
    if !heartbeat.config.enabled {
        return Ok(heartbeat);
    }
    if let Some(name) = &heartbeat.config.model {
        chosen::check(name, model).map_err(|why| format!("heartbeat.model: {why}"))?;
    }
    let mut people: Vec<&ChannelId> =
        channels.values().filter(|channel| channel.carries_people()).map(|channel| channel.id()).collect();
    people.sort_unstable();
    match heartbeat.route().filter(|route| !people.contains(&&route.channel)) {
        Some(route) => {
            let (there, channel) = (people.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(", "), route.channel);
            Err(format!("heartbeat.deliver_to.channel: nobody can be told through {channel} here; there is {there}"))
        }
        None => Ok(heartbeat),
    }
}
