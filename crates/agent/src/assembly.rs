//! Assembles an agent: its parts, and the services made from them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use belay_agent_loop::{Reasoning, StopRules};
use belay_protocol::callback::CallbackClient;
use belay_protocol::{
    BootId, BoundHook, Channel, ChannelId, Clock, ContextSource, ModelProvider, OutgoingFiles, OutputKeeper,
    RunProcesses, Tool, ToolHealthConfig, ToolSet, TroubleSource,
};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::agent_services::{AgentServices, ClusterServices, StorePorts, WAIT_PERMITS};
use crate::in_place::{AskerPorts, PersonAsker};
use crate::leased_delivery::LeasedDelivery;
use crate::mail::LaneNote;
use crate::model_choice;
use crate::pairing::Pairing;
use crate::queue::QueueConfig;
use crate::sessions::{Resets, SessionsConfig};
use crate::titles::Titles;
use belay_automation::jobs::{JobAction, JobService, JobsConfig, Wakeup, create_job_tool};
use belay_automation::routines::heartbeat::{Heartbeat, HeartbeatConfig};
use belay_automation::routines::{RoutineRegistry, RoutineService, RoutinesConfig, list_routines_tool, routine_tool};
use belay_automation::submitter::Submitter;
use belay_delegates::container::{WorkersParts, run_in_worker_tool};
use belay_delegates::plan::{self, PlanKit};
use belay_delegates::subagent::{ChildServices, SubagentLanes, spawn_subagent_tool};
use belay_run::approvals::{ApprovalsConfig, Policy};
use belay_run::attached_pictures::AttachedPictures;
use belay_run::child_asker::ChildAsker;
use belay_run::chunking::StreamingConfig;
use belay_run::completion_check;
use belay_run::config::{AgentConfig, CompactionConfig, LimitsConfig, MemoryConfig};
use belay_run::cost_guard::CostGuard;
use belay_run::cost_slices::SliceSource;
use belay_run::effect_gate::{EffectGate, GatePorts};
use belay_run::error::AgentError;
use belay_run::find_tools::{self, with_finder};
use belay_run::freeze::Freezer;
use belay_run::hooks::HookChain;
use belay_run::memory::MemoryRules;
use belay_run::prompt::{self, Briefing, BriefingSource, PromptBook, Snapshots};
use belay_run::rights::{AccessPolicy, DisabledChannels};
use belay_run::send_file::send_file_tool;
use belay_run::send_message::send_message_tool;
use belay_run::services::RunServices;
use belay_run::terminate::Terminate;
use belay_run::tool_health::{Health, HealthPorts};

/// The parts of an agent.
pub struct AgentParts {
    /// Settings of `[agent]`.
    pub config: AgentConfig,
    /// Settings of `[limits]`.
    pub limits: LimitsConfig,
    /// The stop rules: `[stops]`, and the part of `[limits]` that concerns one run.
    pub rules: Arc<StopRules>,
    /// Settings of `[queue]`.
    pub queue: QueueConfig,
    /// Settings of `[approvals]`.
    pub approvals: ApprovalsConfig,
    /// Settings of `[compaction]`.
    pub compaction: CompactionConfig,
    /// Settings of `[memory]`.
    pub memory: MemoryConfig,
    /// Settings of `[streaming]`.
    pub streaming: StreamingConfig,
    /// Settings of `[sessions]`.
    pub sessions: SessionsConfig,
    /// Settings of `[routines]`.
    pub routines: RoutinesConfig,
    /// Settings of `[heartbeat]`.
    pub heartbeat: HeartbeatConfig,
    /// Settings of `[jobs]`.
    pub jobs: JobsConfig,
    /// Settings of `[tools.health]`.
    pub health: ToolHealthConfig,
    /// Processes of runs.
    pub processes: Arc<dyn RunProcesses>,
    /// The operator's hooks, with their points.
    pub hooks: Vec<BoundHook>,
    /// Stores outputs that are too long to be shown whole.
    pub outputs: Option<Arc<dyn OutputKeeper>>,
    /// The model.
    pub model: Arc<dyn ModelProvider>,
    /// The tools that are offered to the model.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Knows the troubles of the machine.
    pub machine: Arc<dyn TroubleSource>,
    /// The channels, started by the agent.
    pub channels: Vec<Arc<dyn Channel>>,
    /// The leases of the channels; `None`: the daemon uses its database alone.
    pub leases: Option<LeasedDelivery>,
    /// Access rules of disabled channels, for work that was requested through them.
    pub absent: DisabledChannels,
    /// The ports of the store.
    pub store: StorePorts,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The id of this start of the daemon.
    pub boot: BootId,
    /// The services of a cluster; `None`: the daemon uses its database alone.
    pub cluster: Option<ClusterServices>,
    /// The program's version, for `/version` and the status.
    pub version: String,
    /// Maximum length of one answer, in tokens.
    pub max_tokens: u32,
    /// Maximum requests for one logical model call.
    pub max_attempts: u32,
    /// Set to `true` while messages are accepted.
    pub ready: watch::Sender<bool>,
    /// The parts for workers; `None`: there are no workers.
    pub workers: Option<WorkersParts>,
    /// Reads the files and skills of the workspace for prompts.
    pub context: Arc<dyn ContextSource>,
    /// Admits people; `None`: no channel admits people by pairing.
    pub pairing: Option<Arc<Pairing>>,
    /// Reads the files of the workspace that runs send; `None`: runs send no files.
    pub outgoing: Option<Arc<dyn OutgoingFiles>>,
    /// Checks the addresses for callbacks; `None`: there are no callbacks.
    pub callbacks: Option<Arc<dyn CallbackClient>>,
}

/// Makes the services of an agent from its parts. Also returns the sender that reports whether messages are accepted.
///
/// # Errors
/// A setting names something unknown, a tool's schema is not a valid JSON Schema, or the store does not respond.
pub(crate) async fn assemble(
    parts: AgentParts,
    submitter: Submitter,
    notes: mpsc::Sender<LaneNote>,
) -> Result<(AgentServices, watch::Sender<bool>), AgentError> {
    let workers = parts.workers.clone().and_then(ready_workers);
    let lanes = SubagentLanes::new(&parts.config.subagents);
    let children = Arc::new(ChildServices { lanes, workers });
    let (tools, plans) = tools_of(&parts, &children)?;
    let channels = parts.channels.iter().map(|channel| (channel.id().clone(), channel.clone()));
    let channels: Arc<HashMap<_, _>> = Arc::new(channels.collect());
    let memory = MemoryRules { config: parts.memory.clone(), channels: channels.clone() };
    let (approvals, work_questions) = (Arc::new(ArcSwap::from_pointee(parts.approvals.clone())), Arc::default());
    let asker = Arc::new(PersonAsker::new(
        AskerPorts {
            approvals: parts.store.approvals.clone(),
            questions: parts.store.child_questions.clone(),
            outbox: parts.store.outbox.clone(),
            config: approvals.clone(),
            work_questions: Arc::clone(&work_questions),
            clock: parts.clock.clone(),
            notes,
        },
        &parts.config,
        parts.routines.max_concurrent,
    ));
    let run = Arc::new(run_services(&parts, tools, memory, asker.clone()).await?);
    let access = Arc::new(AccessPolicy::new(channels.clone(), parts.absent));
    let heartbeat = heartbeat_of(parts.heartbeat, &channels, &*parts.model).map_err(AgentError::Heartbeat)?;
    let titles = Titles::of(&parts.sessions.titles, &*parts.model).map_err(AgentError::Titles)?;
    let draining = run.draining.clone();
    let jobs = Arc::new(JobService {
        config: parts.jobs,
        jobs: parts.store.jobs.clone(),
        job_store: parts.store.job_store.clone(),
        attempts: parts.store.attempts.clone(),
        runs: parts.store.runs.clone(),
        inputs: parts.store.inputs.clone(),
        routines: parts.store.routines.clone(),
        processes: parts.processes.clone(),
        clock: parts.clock.clone(),
        boot: parts.boot,
        hints: parts.cluster.as_ref().map(|cluster| cluster.hints.clone()),
        submitter: submitter.clone(),
        bell: Wakeup::default(),
        access: access.clone(),
        has_workers: children.workers.is_some(),
        freezer: run.freezer.clone(),
        draining: draining.clone(),
    });
    let routines = Arc::new(RoutineService {
        registry: RoutineRegistry::new(parts.routines),
        heartbeat,
        routines: parts.store.routines.clone(),
        routine_store: parts.store.routine_store.clone(),
        schedule: parts.store.schedule.clone(),
        routine_run_store: parts.store.routine_run_store.clone(),
        runs: parts.store.runs.clone(),
        conversations: parts.store.conversations.clone(),
        inputs: parts.store.inputs.clone(),
        jobs: jobs.clone(),
        clock: parts.clock.clone(),
        boot: parts.boot,
        hints: parts.cluster.as_ref().map(|cluster| cluster.hints.clone()),
        submitter,
        context: parts.context.clone(),
        channels: channels.clone(),
        access,
        run: run.clone(),
        draining: draining.clone(),
    });
    let services = AgentServices {
        permits: Arc::new(Semaphore::new(parts.config.max_concurrent_turns)),
        wait_permits: Arc::new(Semaphore::new(WAIT_PERMITS)),
        briefings: BriefingSource {
            context: parts.context.clone(),
            snapshots: Snapshots::default(),
            stored: parts.store.skills.clone(),
            channels: channels.clone(),
            clock: parts.clock.clone(),
            notes: parts.store.prompt_notes.clone(),
            note_chars: parts.memory.prompt_chars,
        },
        queue: parts.queue,
        approvals,
        asker,
        work_questions,
        streaming: parts.streaming,
        resets: Resets::of(&parts.sessions),
        outputs: parts.outputs,
        titles,
        processes: parts.processes,
        hooks: run.hooks.clone(),
        channels,
        leases: parts.leases,
        store: parts.store,
        started_at: parts.clock.now(),
        clock: parts.clock,
        boot: parts.boot,
        cluster: parts.cluster,
        version: parts.version,
        context: parts.context,
        outgoing: parts.outgoing.filter(|_| run.config.send_file),
        callbacks: parts.callbacks,
        machine: parts.machine,
        pairing: parts.pairing,
        run,
        children,
        plans: Arc::new(plans),
        jobs,
        routines,
        draining,
    };
    Ok((services, parts.ready))
}

/// The parts for workers, if workers can be started.
fn ready_workers(workers: WorkersParts) -> Option<WorkersParts> {
    if !workers.config.enabled {
        return None;
    }
    match workers.host.ready() {
        Ok(()) => Some(workers),
        Err(why) => {
            tracing::warn!(why, "no workers can be started, so run_in_worker is not offered");
            None
        }
    }
}

/// The tools of a conversation, and the services for plans.
fn tools_of(parts: &AgentParts, children: &Arc<ChildServices>) -> Result<(Vec<Arc<dyn Tool>>, PlanKit), AgentError> {
    let config = &parts.config;
    let mut tools = parts.tools.clone();
    if config.subagents.enabled() {
        tools.push(Arc::new(spawn_subagent_tool(&config.subagents)));
    }
    if let Some(workers) = &children.workers {
        tools.push(Arc::new(run_in_worker_tool(&workers.config)));
    }
    // Executors may start subagents. They always have their own `terminate`, and none of the tools added below.
    let plans = PlanKit::build(config, &tools, parts.max_tokens, parts.max_attempts, children.clone())?;
    if config.send_message {
        tools.push(Arc::new(send_message_tool()));
    }
    if config.send_file && parts.outgoing.is_some() {
        tools.push(Arc::new(send_file_tool()));
    }
    if parts.jobs.enabled {
        tools.push(Arc::new(create_job_tool()));
        tools.extend(JobAction::ALL.map(|action| Arc::new(action.declared()) as Arc<dyn Tool>));
    }
    if parts.routines.enabled {
        tools.push(Arc::new(routine_tool()));
        tools.push(Arc::new(list_routines_tool()));
    }
    if config.terminate {
        tools.push(Arc::new(Terminate::new()));
    }
    Ok((with_finder(tools), plans))
}

/// The services that every run uses. `tools`: those of a conversation.
async fn run_services(
    parts: &AgentParts,
    tools: Vec<Arc<dyn Tool>>,
    memory: MemoryRules,
    child_asker: Arc<dyn ChildAsker>,
) -> Result<RunServices, AgentError> {
    // Every tool that any run can have: autonomous work may always call `terminate`, a plan has a tool of its own, and
    // MCP servers may bring enough tools for `find_tools`.
    let own = [Arc::new(Terminate::new()) as Arc<dyn Tool>, plan::tool(), find_tools::tool()];
    let every = ToolSet::new(tools.iter().cloned().chain(own).collect());
    let hooks = Arc::new(HookChain::new(parts.hooks.clone(), parts.clock.clone())?);
    let ports = HealthPorts {
        store: parts.store.switches.clone(),
        events: parts.store.events.clone(),
        clock: parts.clock.clone(),
    };
    let health = Arc::new(Health::load(&parts.health, &every, ports).await?);
    let ports = GatePorts {
        approvals: parts.store.approvals.clone(),
        vault: parts.store.vault.clone(),
        outputs: parts.outputs.clone(),
        hooks: hooks.clone(),
        health: health.clone(),
    };
    let gate = EffectGate::new(&every, Policy::compile(&parts.approvals), ports);
    let freezer = Arc::new(Freezer::load(parts.store.freezes.clone()).await?);
    let (ledger, clock) = (parts.store.spend.clone(), parts.clock.clone());
    let cost = CostGuard::load(ledger, clock, parts.limits.per_day(), parts.model.dearest()).await?;
    let cost = match &parts.cluster {
        Some(cluster) => cost.with_slices(SliceSource { slices: cluster.slices.clone(), boot: parts.boot }),
        None => cost,
    };
    let tools = Arc::new(ToolSet::new(tools));
    let prompt = |tools| prompt::join(&prompt::parts(&parts.config, &Briefing::default(), tools, None));
    let (with_tools, without_tools) = (prompt(Some(&*tools)), prompt(None));
    Ok(RunServices {
        config: parts.config.clone(),
        compaction: parts.compaction.clone(),
        model: parts.model.clone(),
        reasoning: ArcSwap::from_pointee(Reasoning::new(
            with_tools,
            without_tools,
            tools,
            parts.max_tokens,
            parts.max_attempts,
        )),
        checker: completion_check::reasoning(),
        max_tokens: parts.max_tokens,
        max_attempts: parts.max_attempts,
        prompts: PromptBook::default(),
        rules: ArcSwap::new(parts.rules.clone()),
        gate,
        child_asker,
        health,
        freezer,
        cost,
        memory,
        hooks,
        journal: parts.store.journal.clone(),
        events: parts.store.events.clone(),
        draining: CancellationToken::new(),
        pictures: AttachedPictures::new(parts.store.blobs.clone()),
        inputs: parts.store.inputs.clone(),
        clock: parts.clock.clone(),
        model_trouble: Mutex::new(None),
    })
}

/// The heartbeat for these settings.
///
/// # Errors
/// The settings need something that does not exist. The text starts with the setting.
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
        model_choice::check(name, model).map_err(|why| format!("llm.small_model: {why}"))?;
    }
    let mut people: Vec<&ChannelId> =
        channels.values().filter(|channel| channel.profile().carries_people).map(|channel| channel.id()).collect();
    people.sort_unstable();
    match heartbeat.route().filter(|route| !people.contains(&&route.channel)) {
        Some(route) => {
            let (there, channel) = (people.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(", "), route.channel);
            Err(format!("heartbeat.deliver_to.channel: {channel} cannot send notices here; available: {there}"))
        }
        None => Ok(heartbeat),
    }
}
