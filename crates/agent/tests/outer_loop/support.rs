//! An agent in a test: who talks to it, what it talks to.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use belay_agent::{Agent, AgentExit, AgentParts, QueueConfig, Reloader, SessionsConfig, StorePorts};
use belay_agent_loop::StopRules;
use belay_agent_loop::policies::RulesFile;
use belay_automation::{HeartbeatConfig, JobsConfig, RoutinesConfig};
use belay_delegates::WorkersParts;
use belay_protocol::inbound::HistoryLine;
use belay_protocol::{
    Accepted, Ack, AckSender, Ask, Body, BootId, BoundHook, CallPreview, Channel, ChannelAccess, ChannelError,
    ChannelId, ChannelProfile, Clock, ContextSource, Control, CredentialNeed, DeclaredOutput, DeliverError, Effect,
    Envelope, IdempotencyKey, Inbound, InboundStream, NoContext, NoProcesses, Outbound, Preview, Principal,
    PrincipalRole, QueueMode, ReplyRoute, RunOptions, RunProcesses, RunRecord, RunStatus, SecretVault, SessionKey,
    SessionLifetime, Streaming, Tool, ToolContext, ToolFailure, ToolHealthConfig, ToolOutput, ToolSpec, UnixMillis,
    Work,
};
use belay_run::{Absent, AgentConfig, ApprovalsConfig, CompactionConfig, LimitsConfig, StreamingConfig};
use belay_store::{KEY_BYTES, SealedVault, SqliteStore, VaultKey};
use belay_testkit::faulty::Faulty;
use belay_testkit::scripted_model::ScriptedModel;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

/// Longest wait for anything, in paused time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// A clock that is moved by hand.
pub(crate) struct TestClock(AtomicI64);

impl TestClock {
    pub(crate) fn forward(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).expect("in range"), Ordering::SeqCst);
    }

    pub(crate) fn set(&self, ms: i64) {
        self.0.store(ms, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::SeqCst))
    }
}

/// A channel whose messages come from the test and whose deliveries go to it.
pub(crate) struct ProbeChannel {
    id: ChannelId,
    keeps_alive: bool,
    inbound: Mutex<Option<mpsc::Receiver<Envelope>>>,
    delivered: mpsc::Sender<Outbound>,
    refusals: Mutex<Vec<DeliverError>>,
    open_in_drain: Arc<AtomicBool>,
    shows: Shows,
    lists: Option<Arc<dyn ChannelAccess>>,
    /// What was asked of its preview, one line each.
    previews: Mutex<Vec<String>>,
    /// What becomes of the next changes of its preview.
    troubles: Mutex<VecDeque<Trouble>>,
}

/// What a channel shows of an answer while it comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Shows {
    #[default]
    Nothing,
    Blocks,
    Preview,
}

/// What a platform does with a preview instead of the usual.
pub(crate) enum Trouble {
    Error(DeliverError),
    Silence,
}

#[async_trait]
impl Preview for ProbeChannel {
    async fn begin(&self, _route: &ReplyRoute, text: &str) -> Result<Arc<str>, DeliverError> {
        self.preview(format!("begin {text}")).await.map(|()| "p1".into())
    }

    async fn change(&self, _route: &ReplyRoute, message: &str, text: &str) -> Result<(), DeliverError> {
        self.preview(format!("{message} {text}")).await
    }

    async fn discard(&self, _route: &ReplyRoute, message: &str) {
        let _ = self.preview(format!("discard {message}")).await; // it has no answer
    }

    fn pace(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn max_chars(&self) -> usize {
        4000
    }
}

impl ProbeChannel {
    async fn preview(&self, asked: String) -> Result<(), DeliverError> {
        self.previews.lock().expect("no test panics with it").push(asked);
        let trouble = self.troubles.lock().expect("no test panics with it").pop_front();
        match trouble {
            Some(Trouble::Error(error)) => Err(error),
            Some(Trouble::Silence) => std::future::pending().await,
            None => Ok(()),
        }
    }

    /// What was asked of its preview.
    pub(crate) fn previews(&self) -> Vec<String> {
        self.previews.lock().expect("no test panics with it").clone()
    }

    /// What becomes of the next change of its preview.
    pub(crate) fn trouble(&self, trouble: Trouble) {
        self.troubles.lock().expect("no test panics with it").push_back(trouble);
    }

    /// What the next deliveries answer.
    pub(crate) fn fail_next(&self, errors: Vec<DeliverError>) {
        *self.refusals.lock().expect("no test panics with it") = errors;
    }
}

#[async_trait]
impl Channel for ProbeChannel {
    fn id(&self) -> &ChannelId {
        &self.id
    }

    /// Only injects what timers say, where the daemon does not live for it.
    fn profile(&self) -> ChannelProfile<'_> {
        let alive = self.keeps_alive;
        ChannelProfile { keeps_alive: alive, carries_people: alive, ..ChannelProfile::default() }
    }

    fn streaming(&self) -> Streaming<'_> {
        match self.shows {
            Shows::Nothing => Streaming::Off,
            Shows::Blocks => Streaming::Blocks { max_chars: 4000 },
            Shows::Preview => Streaming::Preview(self),
        }
    }

    fn admission(&self) -> Option<&dyn ChannelAccess> {
        self.lists.as_deref()
    }

    async fn start(&self, intake: CancellationToken) -> Result<InboundStream, ChannelError> {
        use futures_util::StreamExt;
        let receiver = self.inbound.lock().expect("no test panics with it").take().expect("started once");
        let open_in_drain = self.open_in_drain.clone();
        let closed = async move {
            intake.cancelled().await;
            if open_in_drain.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
        };
        Ok(ReceiverStream::new(receiver).take_until(Box::pin(closed)).boxed())
    }

    async fn deliver(&self, message: &Outbound) -> Result<(), DeliverError> {
        let refusal = {
            let mut refusals = self.refusals.lock().expect("no test panics with it");
            if refusals.is_empty() { None } else { Some(refusals.remove(0)) }
        };
        match refusal {
            Some(error) => Err(error),
            None => {
                self.delivered.send(message.clone()).await.expect("the test listens");
                Ok(())
            }
        }
    }
}

/// The test's end of a channel.
pub(crate) struct Talker {
    pub(crate) channel: ChannelId,
    tx: mpsc::Sender<Envelope>,
    pub(crate) delivered: mpsc::Receiver<Outbound>,
    pub(crate) probe: Arc<ProbeChannel>,
}

impl Talker {
    fn inbound(&self, session: &str, role: PrincipalRole, body: Body, key: Option<&str>) -> Inbound {
        Inbound {
            key: key.map(|key| IdempotencyKey {
                channel: self.channel.clone(),
                account: session.into(),
                message_id: key.into(),
            }),
            reply_to: Some(ReplyRoute { channel: self.channel.clone(), conversation: session.into(), reply_to: None }),
            ..Inbound::new(self.channel.clone(), session.into(), Principal { id: "tester".into(), role }, body)
        }
    }

    pub(crate) async fn send(&self, inbound: Inbound) -> Ack {
        let (ack, answer) = AckSender::channel();
        self.tx.send(Envelope { inbound, ack }).await.expect("the agent listens");
        tokio::time::timeout(PATIENCE, answer).await.expect("an acknowledgement").expect("answered")
    }

    pub(crate) async fn text_as(&self, session: &str, role: PrincipalRole, text: &str) -> Ack {
        self.send(self.inbound(session, role, Body::Text(text.into()), None)).await
    }

    /// Sends a text as an operator.
    pub(crate) async fn text(&self, session: &str, text: &str) -> Ack {
        self.text_as(session, PrincipalRole::Operator, text).await
    }

    /// Sends a text as this person.
    pub(crate) async fn text_of(&self, who: &str, session: &str, text: &str) -> Ack {
        let inbound = self.inbound(session, PrincipalRole::User, Body::Text(text.into()), None);
        let principal = Principal { id: who.into(), role: PrincipalRole::User };
        self.send(Inbound { principal, ..inbound }).await
    }

    /// Sends a text that asks this of its run.
    pub(crate) async fn text_with(&self, session: &str, text: &str, options: RunOptions) -> Ack {
        let inbound = self.inbound(session, PrincipalRole::Operator, Body::Text(text.into()), None);
        self.send(Inbound { options, ..inbound }).await
    }

    /// Sends a text that a platform has relayed from a group.
    pub(crate) async fn relayed(&self, session: &str, text: &str) -> Ack {
        let inbound = self.inbound(session, PrincipalRole::User, Body::Text(text.into()), None);
        self.send(Inbound { relayed: true, ..inbound }).await
    }

    /// Sends a text that asks this of its run, and wants to read along.
    pub(crate) async fn asking(&self, session: &str, text: &str, options: RunOptions) -> Accepted {
        let inbound = self.inbound(session, PrincipalRole::Operator, Body::Text(text.into()), None);
        match self.send(Inbound { options, want_deltas: true, ..inbound }).await {
            Ack::Accepted(accepted) => accepted,
            other => panic!("{text:?} was not accepted: {other:?}"),
        }
    }

    /// The next delivered message.
    pub(crate) async fn next_message(&mut self) -> Outbound {
        let next = tokio::time::timeout(PATIENCE, self.delivered.recv()).await.expect("a delivery");
        next.expect("the agent delivers")
    }

    /// Sends a text with an idempotency key.
    pub(crate) async fn keyed(&self, session: &str, text: &str, key: &str) -> Ack {
        self.send(self.inbound(session, PrincipalRole::Operator, Body::Text(text.into()), Some(key))).await
    }

    /// The same, of a text that asks this of its run and must come up with these outputs.
    pub(crate) async fn keyed_with(
        &self,
        session: &str,
        text: &str,
        key: &str,
        options: RunOptions,
        outputs: Vec<DeclaredOutput>,
    ) -> Ack {
        let inbound = self.inbound(session, PrincipalRole::Operator, Body::Text(text.into()), Some(key));
        self.send(Inbound { options, outputs, ..inbound }).await
    }

    pub(crate) async fn control_as(&self, role: PrincipalRole, control: Control) -> Ack {
        self.send(self.inbound("control", role, Body::Control(control), None)).await
    }

    pub(crate) async fn control(&self, control: Control) -> Ack {
        self.send(self.inbound("control", PrincipalRole::Operator, Body::Control(control), None)).await
    }

    /// Sends a text that must be accepted.
    pub(crate) async fn accepted(&self, session: &str, text: &str) -> Accepted {
        match self.text(session, text).await {
            Ack::Accepted(accepted) => accepted,
            other => panic!("{text:?} was not accepted: {other:?}"),
        }
    }

    /// Sends a command and returns its answer; its delivery to the conversation is taken too.
    pub(crate) async fn command(&mut self, session: &str, text: &str) -> String {
        let reply = match self.text(session, text).await {
            Ack::Command(reply) => reply.reply,
            other => panic!("{text:?} was not answered as a command: {other:?}"),
        };
        assert_eq!(self.next().await, reply);
        reply
    }

    /// The next delivered text.
    pub(crate) async fn next(&mut self) -> String {
        let next = tokio::time::timeout(PATIENCE, self.delivered.recv()).await.expect("a delivery");
        next.expect("the agent delivers").text
    }

    /// Sends a text and returns the next delivery.
    pub(crate) async fn ask(&mut self, session: &str, text: &str) -> String {
        self.accepted(session, text).await;
        self.next().await
    }

    /// Sends a text whose answer is not delivered: whoever sent it reads the run.
    pub(crate) async fn silently(&self, session: &str, text: &str) -> Ack {
        let inbound = self.inbound(session, PrincipalRole::Client, Body::Text(text.into()), None);
        self.send(Inbound { reply_to: None, ..inbound }).await
    }

    /// The same, which must be accepted.
    pub(crate) async fn unanswered(&self, session: &str, text: &str) -> Accepted {
        match self.silently(session, text).await {
            Ack::Accepted(accepted) => accepted,
            other => panic!("{text:?} was not accepted: {other:?}"),
        }
    }

    /// Sends a text in a session that is created for it, whose sender reads the run; it must be accepted.
    pub(crate) async fn for_one_request(&self, session: &str, text: &str) -> Accepted {
        let inbound = self.inbound(session, PrincipalRole::Client, Body::Text(text.into()), None);
        match self.send(Inbound { reply_to: None, lifetime: SessionLifetime::Ephemeral, ..inbound }).await {
            Ack::Accepted(accepted) => accepted,
            other => panic!("{text:?} was not accepted: {other:?}"),
        }
    }

    /// Sends a text with a history.
    pub(crate) async fn with_history(&self, session: &str, text: &str, history: Vec<HistoryLine>) -> Ack {
        let inbound = self.inbound(session, PrincipalRole::Operator, Body::Text(text.into()), None);
        self.send(Inbound { history, ..inbound }).await
    }

    /// Sends what a user says in a message that claims to be this work.
    pub(crate) async fn claiming(&self, work: Work, session: &str, body: Body) -> Ack {
        let inbound = self.inbound(session, PrincipalRole::User, body, None);
        self.send(Inbound { work, ..inbound }).await
    }

    /// Sends what another principal says, whoever that is.
    pub(crate) async fn said_by(&self, who: Principal, session: &str, body: Body) -> Ack {
        let inbound = self.inbound(session, who.role, body, None);
        self.send(Inbound { principal: who, ..inbound }).await
    }

    /// Sends a text that asks this of its run.
    pub(crate) async fn with_options(&self, session: &str, text: &str, options: RunOptions) -> Ack {
        let inbound = self.inbound(session, PrincipalRole::Operator, Body::Text(text.into()), None);
        self.send(Inbound { options, ..inbound }).await
    }

    /// Sends a text that must come up with these outputs.
    pub(crate) async fn with_outputs(&self, session: &str, text: &str, outputs: Vec<DeclaredOutput>) -> Ack {
        let inbound = self.inbound(session, PrincipalRole::Operator, Body::Text(text.into()), None);
        self.send(Inbound { outputs, ..inbound }).await
    }

    /// Sends a text and listens to every word of the answer.
    pub(crate) async fn watching(&self, session: &str, text: &str) -> Accepted {
        let inbound = self.inbound(session, PrincipalRole::Operator, Body::Text(text.into()), None);
        match self.send(Inbound { want_deltas: true, ..inbound }).await {
            Ack::Accepted(accepted) => accepted,
            other => panic!("{text:?} was not accepted: {other:?}"),
        }
    }

    /// Somebody else who writes in the same channel, and does not read it.
    pub(crate) fn writer(&self) -> Talker {
        let (_, delivered) = mpsc::channel(1);
        Talker { channel: self.channel.clone(), tx: self.tx.clone(), delivered, probe: self.probe.clone() }
    }

    /// Sends a text that asks for this mode.
    pub(crate) async fn in_mode(&self, session: &str, mode: QueueMode, text: &str) -> Accepted {
        let inbound = self.inbound(session, PrincipalRole::Operator, Body::Text(text.into()), None);
        let options = RunOptions { queue: Some(mode), ..RunOptions::default() };
        match self.send(Inbound { options, ..inbound }).await {
            Ack::Accepted(accepted) => accepted,
            other => panic!("{text:?} was not accepted: {other:?}"),
        }
    }

    /// The same, for another conversation of the same session.
    pub(crate) async fn elsewhere(&self, session: &str, place: &str, mode: QueueMode, text: &str) -> Accepted {
        let inbound = self.inbound(session, PrincipalRole::Operator, Body::Text(text.into()), None);
        let options = RunOptions { queue: Some(mode), ..RunOptions::default() };
        let reply_to = inbound.reply_to.clone().map(|route| ReplyRoute { conversation: place.into(), ..route });
        match self.send(Inbound { options, reply_to, ..inbound }).await {
            Ack::Accepted(accepted) => accepted,
            other => panic!("{text:?} was not accepted: {other:?}"),
        }
    }

    /// Lets the channel go on yielding while the agent drains, as one does that can still take control.
    pub(crate) fn keep_open(&self) {
        self.probe.open_in_drain.store(true, Ordering::SeqCst);
    }

    /// Ends the channel's stream.
    pub(crate) fn hang_up(self) -> mpsc::Receiver<Outbound> {
        self.delivered
    }
}

/// Waits for the end of an accepted run.
pub(crate) async fn end_of(accepted: Accepted) -> Arc<RunRecord> {
    let mut finished = accepted.watch.expect("alive").finished;
    let ended = |record: &Option<Arc<RunRecord>>| record.as_ref().is_some_and(|record| record.status.is_end());
    let record = tokio::time::timeout(PATIENCE, finished.wait_for(ended)).await.expect("an end");
    record.expect("published").clone().expect("some")
}

/// Waits until an accepted run rests on a question.
pub(crate) async fn rest_of(accepted: &mut Accepted) -> Arc<RunRecord> {
    let finished = &mut accepted.watch.as_mut().expect("alive").finished;
    let record = tokio::time::timeout(PATIENCE, finished.wait_for(Option::is_some)).await.expect("a rest");
    let record = record.expect("published").clone().expect("some");
    assert_eq!(record.status, RunStatus::Paused);
    record
}

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
    pub(crate) absent: Absent,
    /// What its channels are called.
    pub(crate) names: [&'static str; 2],
}

/// The ports of a store that fails where it is told to.
pub(crate) fn ports(store: Arc<Faulty<SqliteStore>>) -> StorePorts {
    StorePorts::of(store, vault())
}

/// A vault in memory.
fn vault() -> Arc<dyn SecretVault> {
    let key = VaultKey::from_bytes(&[7; KEY_BYTES]).expect("a key");
    Arc::new(SealedVault::new(Arc::new(SqliteStore::in_memory().expect("a store in memory opens")), key))
}

/// An agent over a store that fails where it is told to.
pub(crate) fn faulty(model: ScriptedModel) -> (Setup, Faulty<SqliteStore>) {
    let store = Faulty::new(Arc::new(SqliteStore::in_memory().expect("a store in memory opens")));
    (Setup { store: ports(Arc::new(store.clone())), ..Setup::new(model) }, store)
}

/// Rules as the settings write them: the content of `[stops]`, with `[limits]` as a table in it.
pub(crate) fn rules(toml: &str) -> Arc<StopRules> {
    let file: RulesFile = toml::from_str(toml).expect("rules");
    Arc::new(StopRules::compile(&file.stops, &file.run_limits()))
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
            store: ports(Arc::new(Faulty::new(Arc::new(SqliteStore::in_memory().expect("a store in memory opens"))))),
            clock: Arc::new(TestClock(AtomicI64::new(1_795_000_000_000))),
            injector: false,
            workers: None,
            processes: Arc::new(NoProcesses),
            context: Arc::new(NoContext),
            hooks: Vec::new(),
            shows: Shows::default(),
            streaming: StreamingConfig::default(),
            lists: None,
            absent: Absent::new(),
            names: ["one", "two"],
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
        }
    }

    fn channel(&self, name: &str, keeps_alive: bool) -> Talker {
        let (tx, inbound) = mpsc::channel(256);
        let (delivered_tx, delivered) = mpsc::channel(256);
        let probe = Arc::new(ProbeChannel {
            id: name.into(),
            keeps_alive,
            inbound: Mutex::new(Some(inbound)),
            delivered: delivered_tx,
            refusals: Mutex::default(),
            open_in_drain: Arc::default(),
            shows: self.shows,
            lists: self.lists.clone(),
            previews: Mutex::default(),
            troubles: Mutex::default(),
        });
        Talker { channel: name.into(), tx, delivered, probe }
    }

    /// What it is made of, without channels.
    pub(crate) fn parts(&self) -> AgentParts {
        AgentParts {
            config: self.config.clone(),
            limits: self.limits.clone(),
            approvals: self.approvals.clone(),
            compaction: self.compaction.clone(),
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
        let agent = Agent::start(parts).await.expect("the agent starts");
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

/// A tool for tests, by name: `echo` returns its `text`, `fail` fails, `panic` panics, `wait` waits for its token,
/// `deaf` waits without looking at it, `slow` takes a second, `moody` fails while its world is `broken`, `chatty` works for five
/// hours and says so each minute.
pub(crate) struct TestTool {
    spec: ToolSpec,
    pub(crate) calls: Arc<AtomicUsize>,
    behaves_as: String,
    world: Arc<Mutex<String>>,
    /// Secrets that it was called with.
    pub(crate) secrets: Arc<Mutex<Vec<String>>>,
}

impl TestTool {
    pub(crate) fn named(name: &str) -> Self {
        let schema =
            json!({"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": false});
        Self {
            spec: ToolSpec {
                effect: Effect::Read,
                timeout: Duration::from_secs(30),
                max_output_bytes: 1000,
                ..ToolSpec::new(name, format!("the tool {name}"), schema)
            },
            calls: Arc::default(),
            behaves_as: name.into(),
            world: Arc::default(),
            secrets: Arc::default(),
        }
    }

    /// The same tool, which asks before it acts.
    pub(crate) fn asking(mut self) -> Self {
        self.spec.approval = Ask::UnlessApproved;
        self.writing()
    }

    /// The same tool, whose answers are words of the outside.
    pub(crate) fn of_outside(mut self) -> Self {
        self.spec.outside = true;
        self
    }

    /// The same tool, of an MCP server.
    pub(crate) fn of_server(mut self, server: &str) -> Self {
        self.spec.server = Some(server.into());
        self
    }

    /// The same tool, described by whoever runs that MCP server.
    pub(crate) fn described_by(mut self, server: &str) -> Self {
        self.spec.foreign = true;
        self.of_server(server)
    }

    /// The same tool, one of whose arguments is shown to nobody.
    pub(crate) fn sensitive(mut self, argument: &str) -> Self {
        self.spec.sensitive.push(argument.into());
        self
    }

    /// The same tool, whose results may have so many bytes.
    pub(crate) fn saying(mut self, max_output_bytes: usize) -> Self {
        self.spec.max_output_bytes = max_output_bytes;
        self
    }

    /// The same tool, which may take so long.
    pub(crate) fn within(mut self, timeout: Duration) -> Self {
        self.spec.timeout = timeout;
        self
    }

    /// The same tool under another name.
    pub(crate) fn called(mut self, name: &str) -> Self {
        self.spec.name = name.into();
        self
    }

    /// The same tool, which needs a secret of that name.
    pub(crate) fn secret(mut self, name: &str) -> Self {
        self.spec.credential =
            Some(CredentialNeed { name: name.into(), instructions: format!("Paste the {name} here.") });
        self
    }

    /// What the tool weighs besides its arguments: shared, so that a test can change the world.
    pub(crate) fn world(&self) -> Arc<Mutex<String>> {
        self.world.clone()
    }

    /// The same tool, with an effect that must not be repeated.
    pub(crate) fn writing(mut self) -> Self {
        self.spec.effect = Effect::External;
        self.spec.idempotent = false;
        self
    }
}

#[async_trait]
impl Tool for TestTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn weigh(&self, _arguments: &Map<String, Value>, _session: &SessionKey) -> Result<CallPreview, ToolFailure> {
        let world = self.world.lock().expect("not poisoned").clone();
        let bound = if world.is_empty() { Vec::new() } else { vec![("world".to_owned(), world)] };
        Ok(CallPreview { bound, covers: Some(format!("all of {}", self.spec.name)), ..CallPreview::default() })
    }

    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if let Some(secret) = &context.credential {
            self.secrets.lock().expect("not poisoned").push(secret.expose().to_owned());
            if secret.expose() == "wrong" {
                return Err(ToolFailure::CredentialRefused("the secret was not accepted".into()));
            }
        }
        match self.behaves_as.as_str() {
            "echo" => Ok(arguments.get("text").and_then(Value::as_str).unwrap_or("nothing").into()),
            "moody" if *self.world.lock().expect("not poisoned") == "broken" => {
                Err(ToolFailure::failed("no answer of 192.0.2.7 to ann"))
            }
            "moody" => Ok("it works".into()),
            "fail" => Err(ToolFailure::failed("it does not work")),
            "panic" => panic!("the tool of the test panics"),
            "wait" => {
                tokio::select! {
                    () = context.cancel.cancelled() => Err(ToolFailure::Cancelled),
                    () = tokio::time::sleep(Duration::from_secs(30)) => Ok("waited".into()),
                }
            }
            "deaf" => {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                Ok("waited".into())
            }
            "chatty" => {
                for minute in 0..300 {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                    context.progress.say(&context.call_id, &format!("minute {minute}"));
                }
                Ok("all of it".into())
            }
            "slow" => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok("slowly".into())
            }
            other => panic!("no such test tool: {other}"),
        }
    }
}

/// The same model, which is never asked to write the account of what leaves a conversation: a rule does.
pub(crate) fn by_rule(model: ScriptedModel) -> ScriptedModel {
    model.with_info(|info| info.rehearsal = true)
}

/// What the model saw in its request number `n`, from 1, as one text for simple assertions.
pub(crate) fn saw(model: &ScriptedModel, n: usize) -> Vec<String> {
    model.seen()[n - 1].messages.iter().map(|message| message.text().to_owned()).collect()
}
