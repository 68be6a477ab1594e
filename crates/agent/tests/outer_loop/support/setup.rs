//! What an agent is started with, and the agent while it runs.

use std::sync::Arc;

use belay_agent::{Agent, AgentExit, AgentParts, QueueConfig, Reloader, SessionsConfig, StorePorts};
use belay_agent_loop::StopRules;
use belay_automation::{HeartbeatConfig, JobsConfig, RoutinesConfig};
use belay_delegates::WorkersParts;
use belay_protocol::{
    BootId, BoundHook, ChannelAccess, ContextSource, NoContext, NoProcesses, NoTroubles, OutgoingFiles, RunProcesses,
    SecretVault, Tool, ToolHealthConfig,
};
use belay_run::{AgentConfig, ApprovalsConfig, CompactionConfig, DisabledChannels, LimitsConfig, StreamingConfig};
use belay_store::{Blobs, KEY_BYTES, SealedVault, SqlStore, VaultKey};
use belay_testkit::faulty::Faulty;
use belay_testkit::scripted_model::ScriptedModel;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{PATIENCE, ProbeChannel, Shows, Talker, TestClock, TestTool};

/// What an agent is started with; change it, then [`Setup::start`].
pub(crate) struct Setup {
    pub(crate) config: AgentConfig,
    pub(crate) limits: LimitsConfig,
    pub(crate) approvals: ApprovalsConfig,
    pub(crate) compaction: CompactionConfig,
    pub(crate) sessions: SessionsConfig,
    pub(crate) routines: RoutinesConfig,
    pub(crate) heartbeat: HeartbeatConfig,
    pub(crate) jobs: JobsConfig,
    pub(crate) health: ToolHealthConfig,
    pub(crate) rules: Arc<StopRules>,
    pub(crate) queue: QueueConfig,
    pub(crate) model: Arc<ScriptedModel>,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) store: StorePorts,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) injector: bool,
    pub(crate) workers: Option<WorkersParts>,
    pub(crate) processes: Arc<dyn RunProcesses>,
    pub(crate) context: Arc<dyn ContextSource>,
    pub(crate) hooks: Vec<BoundHook>,
    /// What its channels show of an answer while it comes.
    pub(crate) shows: Shows,
    pub(crate) streaming: StreamingConfig,
    /// Who is let in through its channels, where they say.
    pub(crate) lists: Option<Arc<dyn ChannelAccess>>,
    /// Who is let in through channels that are switched off.
    pub(crate) absent: DisabledChannels,
    /// What its channels are called.
    pub(crate) names: [&'static str; 2],
    /// The files that its runs may send.
    pub(crate) outgoing: Option<Arc<dyn OutgoingFiles>>,
    /// The largest file that its channels deliver.
    pub(crate) max_file_bytes: u64,
}

/// The ports of a store that fails where it is told to.
pub(crate) fn ports(store: Arc<Faulty<SqlStore>>) -> StorePorts {
    StorePorts::of(store, vault(), Arc::new(Blobs::in_memory()))
}

/// A vault in memory.
fn vault() -> Arc<dyn SecretVault> {
    let key = VaultKey::from_bytes(&[7; KEY_BYTES]).expect("a key");
    Arc::new(SealedVault::new(Arc::new(SqlStore::in_memory().expect("a store in memory opens")), key))
}

/// An agent over a store that fails where it is told to.
pub(crate) fn faulty(model: ScriptedModel) -> (Setup, Faulty<SqlStore>) {
    let store = Faulty::new(Arc::new(SqlStore::in_memory().expect("a store in memory opens")));
    (Setup { store: ports(Arc::new(store.clone())), ..Setup::new(model) }, store)
}

impl Setup {
    pub(crate) fn new(model: ScriptedModel) -> Self {
        Self {
            config: AgentConfig::default(),
            limits: LimitsConfig::default(),
            approvals: ApprovalsConfig::default(),
            compaction: CompactionConfig::default(),
            sessions: SessionsConfig::default(),
            routines: RoutinesConfig { enabled: false, ..RoutinesConfig::default() },
            heartbeat: HeartbeatConfig::default(),
            // Without jobs the models of all other tests are offered one tool less.
            jobs: JobsConfig { enabled: false, ..JobsConfig::default() },
            health: ToolHealthConfig::default(),
            rules: Arc::new(StopRules::progress()),
            queue: QueueConfig::default(),
            model: Arc::new(model),
            tools: vec![
                Arc::new(TestTool::named("echo")),
                Arc::new(TestTool::named("fail")),
                Arc::new(TestTool::named("panic")),
            ],
            store: ports(Arc::new(Faulty::new(Arc::new(SqlStore::in_memory().expect("a store in memory opens"))))),
            clock: Arc::new(TestClock::new()),
            injector: false,
            workers: None,
            processes: Arc::new(NoProcesses),
            context: Arc::new(NoContext),
            hooks: Vec::new(),
            shows: Shows::default(),
            streaming: StreamingConfig::default(),
            lists: None,
            absent: DisabledChannels::new(),
            names: ["one", "two"],
            outgoing: None,
            max_file_bytes: 1000,
        }
    }

    pub(crate) fn tool(mut self, tool: TestTool) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// The same store, clock and tools with another model: the next boot.
    pub(crate) fn next_boot(&self, model: ScriptedModel) -> Self {
        Self {
            config: self.config.clone(),
            limits: self.limits.clone(),
            approvals: self.approvals.clone(),
            compaction: self.compaction.clone(),
            sessions: self.sessions.clone(),
            routines: self.routines.clone(),
            heartbeat: self.heartbeat.clone(),
            jobs: self.jobs.clone(),
            health: self.health.clone(),
            rules: self.rules.clone(),
            queue: self.queue.clone(),
            model: Arc::new(model),
            tools: self.tools.clone(),
            store: self.store.clone(),
            clock: self.clock.clone(),
            injector: self.injector,
            workers: self.workers.clone(),
            processes: self.processes.clone(),
            context: self.context.clone(),
            hooks: self.hooks.clone(),
            shows: self.shows,
            streaming: self.streaming.clone(),
            lists: self.lists.clone(),
            absent: self.absent.clone(),
            names: self.names,
            outgoing: self.outgoing.clone(),
            max_file_bytes: self.max_file_bytes,
        }
    }

    fn channel(&self, name: &str, keeps_alive: bool) -> Talker {
        let (probe, tx, delivered) =
            ProbeChannel::new(name, keeps_alive, self.shows, self.lists.clone(), self.max_file_bytes);
        Talker::new(probe, tx, delivered)
    }

    /// What it is made of, without channels.
    pub(crate) fn parts(&self) -> AgentParts {
        AgentParts {
            leases: None,
            outgoing: self.outgoing.clone(),
            callbacks: None,
            machine: Arc::new(NoTroubles),
            pairing: None,
            config: self.config.clone(),
            limits: self.limits.clone(),
            approvals: self.approvals.clone(),
            compaction: self.compaction.clone(),
            memory: belay_run::MemoryConfig::default(),
            streaming: self.streaming.clone(),
            sessions: self.sessions.clone(),
            routines: self.routines.clone(),
            heartbeat: self.heartbeat.clone(),
            jobs: self.jobs.clone(),
            health: self.health.clone(),
            processes: self.processes.clone(),
            outputs: None,
            hooks: self.hooks.clone(),
            rules: self.rules.clone(),
            queue: self.queue.clone(),
            model: self.model.clone(),
            tools: self.tools.clone(),
            channels: Vec::new(),
            absent: self.absent.clone(),
            store: self.store.clone(),
            clock: self.clock.clone(),
            boot: BootId::new(),
            cluster: None,
            version: "test".into(),
            max_tokens: 1000,
            max_attempts: 3,
            workers: self.workers.clone(),
            context: self.context.clone(),
            ready: watch::Sender::new(false),
        }
    }

    /// Why the agent does not start.
    pub(crate) async fn refused(&self) -> String {
        let parts = AgentParts { channels: vec![self.channel("one", true).probe], ..self.parts() };
        Agent::start(parts).await.err().expect("it is refused").to_string()
    }

    /// Starts the agent with two channels, `one` and `two`.
    pub(crate) async fn start(&self) -> Running {
        self.start_with(|_| {}).await
    }

    /// The same, with something changed in what it is made of.
    pub(crate) async fn start_with(&self, change: impl FnOnce(&mut AgentParts)) -> Running {
        let one = self.channel(self.names[0], true);
        let two = self.channel(self.names[1], !self.injector);
        let mut parts = AgentParts { channels: vec![one.probe.clone(), two.probe.clone()], ..self.parts() };
        change(&mut parts);
        let stop = CancellationToken::new();
        let agent = Box::pin(Agent::start(parts)).await.expect("the agent starts");
        let reloader = agent.reloader();
        let task = tokio::spawn(agent.run(stop.clone()));
        Running { one, two, stop, task, reloader, model: self.model.clone() }
    }
}

/// A running agent.
pub(crate) struct Running {
    pub(crate) one: Talker,
    pub(crate) two: Talker,
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<AgentExit>,
    pub(crate) reloader: Reloader,
    pub(crate) model: Arc<ScriptedModel>,
}

impl Running {
    /// Waits until the model has been asked so often.
    pub(crate) async fn asked(&self, times: usize) {
        tokio::time::timeout(PATIENCE, self.model.called(times)).await.expect("the model is asked");
    }

    /// Waits until so many calls to the model have been dropped.
    pub(crate) async fn dropped(&self, times: usize) {
        tokio::time::timeout(PATIENCE, self.model.dropped(times)).await.expect("the call is dropped");
    }

    /// Drains it.
    pub(crate) async fn shut_down(self) -> (Talker, Talker) {
        self.stop.cancel();
        self.task.await.expect("no panic");
        (self.one, self.two)
    }

    /// Ends it as a crash would: nothing after this moment is written or sent.
    pub(crate) async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}
