//! The composition root: the only module that knows every concrete type.
//!
//! The types show the lifecycle: [`build`] returns [`Parts`], which are bound but not running. [`Parts::start`] returns
//! [`Running`]. Only a `Running` can be waited for.

mod background;
pub(crate) mod backups;
mod completion;
mod hooks;
mod mcp;
mod metrics;
mod model;
mod own_files;
mod process;
mod programs;
mod reads;
mod services;
mod store;
mod workers;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use belay_agent::submission::menu;
use belay_agent::{Agent, AgentExit, AgentParts, OwnTexts, Pairing, StorePorts};
use belay_channels::{
    AllowLists, Operators, StdinChannel, StdinConfig, Telegram, TelegramParts, TelegramSecrets, bot_api_client,
};
use belay_gateway::{CallbackChannel, Gateway, GatewayError, GatewayParts, SettingsSource};
use belay_hooks::HookSet;
use belay_protocol::callback::CallbackClient;
use belay_protocol::{
    AttachmentIntake, BootId, Channel, ChannelAccess, ChannelPeople, Clock, Message, ModelInfo, PairingCodes,
    TextChecker,
};
use belay_run::approvals::question_text;
use belay_run::{AgentError, DisabledChannels};
use belay_tools::web::CallbackPoster;
use belay_trajectory::import::from_messages;
use signal_hook_tokio::Handle;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use background::Background;
use backups::BackupKeeper;
use completion::StoreLists;
pub(crate) use hooks::{HOOKS_GRACE, hooks};
pub(crate) use mcp::{McpNeeds, sandbox_config, workspace_of};
use metrics::Recorder;
pub(crate) use model::Chosen;
pub(crate) use own_files::{own_files_problems, refuse_own_files};
use programs::ProgramsHandle;
pub(crate) use programs::{Programs, ToolPorts};
pub(crate) use services::{meaning, transcriber};
pub(crate) use store::{Store, refuse_store};
use workers::Workers;

use crate::args::SettingsArgs;
use crate::clock::SystemClock;
use crate::completion::Completion;
use crate::environment::Environment;
use crate::exit::{Exit, Failure};
use crate::janitor::{Kept, RetentionJanitor};
use crate::net::{is_plain_loopback, plain_client};
use crate::paths::Paths;
use crate::reload::{Reload, Reloadable, Source};
use crate::routine_times::Times;
use crate::secrets::Secrets;
use crate::settings::{Loaded, Settings, expand, refused};
use crate::signals::SignalWatch;
use crate::stop_rules::stop_rules;
use crate::systemd::{self, WatchdogChannel};
use crate::traces::TraceExporter;

/// The program's version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Longest time to connect to a message platform.
const PLATFORM_CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// All parts of the daemon: the store is open, addresses are bound, nothing runs yet.
pub(crate) struct Parts {
    agent: AgentParts,
    gateway: Gateway,
    store: Store,
    stdin: Option<Arc<StdinChannel>>,
    programs: ProgramsHandle,
    workers: Option<Workers>,
    hooks: HookSet,
    janitor: Arc<RetentionJanitor>,
    backups: Arc<BackupKeeper>,
    recorder: Recorder,
    traces: Option<TraceExporter>,
    model: ModelInfo,
    /// A notice about the choice of the model, for the person.
    notice: Option<String>,
    reloadable: Reloadable,
    ready: watch::Receiver<bool>,
}

/// Builds the daemon.
///
/// # Errors
/// The failure that prevents a start, with its exit code. What was opened is closed again.
pub(crate) async fn build(
    loaded: &Arc<Loaded>,
    args: &SettingsArgs,
    env: &Environment,
    paths: &Paths,
) -> Result<Parts, Failure> {
    let settings = &loaded.settings;
    refuse_own_files(settings, env, paths)?;
    let secrets = Secrets::find(loaded, env).map_err(|problems| refused(&problems))?;
    paths.make_directories().map_err(|error| {
        Failure::new(Exit::OutOfReach, error).next("set XDG_DATA_HOME (or STATE_DIRECTORY) to a writable directory")
    })?;
    // Concurrently: one waits for the disk, the other for a server that may listen on loopback.
    let (store, chosen) = tokio::join!(Store::open(settings, paths, env), Chosen::find(settings, &secrets));
    let store = store?;
    let assembled = async {
        let source = reads::settings(loaded, args, env, paths);
        assemble(settings, env, paths, secrets, &store, chosen?, source).await
    }
    .await;
    match assembled {
        Ok(Assembled {
            agent,
            gateway,
            stdin,
            notice,
            programs,
            hooks,
            workers,
            janitor,
            backups,
            recorder,
            traces,
            reloadable,
        }) => {
            let (model, ready) = (agent.model.info().clone(), agent.ready.subscribe());
            Ok(Parts {
                agent,
                gateway,
                store,
                stdin,
                programs,
                hooks,
                workers,
                janitor,
                backups,
                recorder,
                traces,
                model,
                notice,
                reloadable,
                ready,
            })
        }
        Err(failure) => {
            store.close().await;
            Err(failure)
        }
    }
}

/// All parts except the store.
struct Assembled {
    agent: AgentParts,
    gateway: Gateway,
    stdin: Option<Arc<StdinChannel>>,
    notice: Option<String>,
    programs: ProgramsHandle,
    workers: Option<Workers>,
    hooks: HookSet,
    janitor: Arc<RetentionJanitor>,
    backups: Arc<BackupKeeper>,
    recorder: Recorder,
    traces: Option<TraceExporter>,
    reloadable: Reloadable,
}

async fn assemble(
    settings: &Settings,
    env: &Environment,
    paths: &Paths,
    secrets: Secrets,
    store: &Store,
    chosen: Chosen,
    settings_source: SettingsSource,
) -> Result<Assembled, Failure> {
    let ports = store.ports();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (ready_tx, ready) = watch::channel(false);
    let meaning = meaning(settings, secrets.embeddings.as_ref(), store.note_vectors())?;
    let (notes, runs) = (ports.notes.clone(), ports.runs.clone());
    let tool_ports = ToolPorts { notes, meaning, runs, clock: clock.clone() };
    let mut programs = Programs::open(settings, env, paths, tool_ports).await?;
    let hooks = hooks::hooks(settings, env, programs.kept())?;
    let transcriber = transcriber(settings, secrets.transcription.as_ref())?;
    let attachments = programs.attachments(settings, store, clock.clone(), transcriber)?;
    let allow_lists = AllowLists::of(&settings.channels.telegram);
    let pairing = pairing(settings, &allow_lists, &ports, clock.clone()).await?;
    let texts = OwnTexts::new(hooks.bound(), clock.clone());
    let texts = Arc::new(texts.map_err(|error| agent_failure(&error))?);
    let telegram = telegram(settings, secrets.telegram, &allow_lists, pairing.clone(), attachments.clone(), texts)?;
    let telegram = telegram.map(|telegram| telegram.with_files(ports.blobs.clone()));
    let (archive, sessions) = (ports.archive.clone(), settings.sessions.clone());
    let (routine_runs_days, hours) = (settings.routines.keep_routine_runs_days, settings.gateway.openai_session_hours);
    let kept = Kept { outputs: programs.kept_outputs(), blobs: ports.blobs.clone(), uploads: store.uploads() };
    let janitor = Arc::new(RetentionJanitor::new(sessions, routine_runs_days, hours, archive, kept, clock.clone()));
    let backups = Arc::new(BackupKeeper::open(settings, env, paths, clock.clone())?);
    let links = Arc::new(store.links(settings.attachments.link_hours, clock.clone()));
    let outgoing = programs.outgoing(settings, store)?;

    let webhook_secret = secrets.gateway.webhook_secret.clone();
    let recorder = Recorder::install()?;
    let (events, runs) = (ports.events.clone(), ports.runs.clone());
    let headers = secrets.otlp_headers.as_ref();
    let traces = TraceExporter::open(&settings.telemetry, headers, chosen.provider.info(), events, runs)
        .map_err(|problem| Failure::new(Exit::Refused, problem))?;
    let (gateway, http) = Gateway::bind(GatewayParts {
        config: settings.gateway.clone(),
        secrets: secrets.gateway,
        runs: ports.runs.clone(),
        sessions: ports.sessions.clone(),
        health: ports.health.clone(),
        events: ports.events.clone(),
        clock: clock.clone(),
        model: chosen.provider.info().clone(),
        version: VERSION.into(),
        metrics: recorder.renderer(store.stats()),
        trajectory: Arc::new(recording),
        approvals: ports.approvals.clone(),
        archive: ports.archive.clone(),
        notes: ports.note_archive.clone(),
        vault: ports.vault.clone(),
        jobs: ports.jobs.clone(),
        routines: ports.routines.clone(),
        times: Arc::new(Times),
        judge: reads::judge(),
        settings: settings_source,
        spending: store.spending(),
        ends: store.ends(),
        sign_ins: store.sign_ins(),
        janitor: janitor.clone(),
        backups: backups.clone(),
        attachments,
        blobs: ports.blobs.clone(),
        links: links.clone(),
        question: Arc::new(question_text),
        extra: telegram.as_ref().and_then(|telegram| telegram.router()).into_iter().collect(),
        control_socket: Some(paths.control_socket.clone()),
        ready,
    })
    .await
    .map_err(|error| gateway_failure(&error))?;

    let (workers, served) = workers::open(settings, env, paths, &programs).await?.unzip();
    let http: Arc<dyn Channel> = Arc::new(http);
    let callbacks = callback_client(settings, webhook_secret.is_some())?;
    let mut channels = vec![match gateway.addr() {
        Some(_) => http,
        None => Arc::new(Background(http)),
    }];
    let stdin = stdin(settings, env, paths, ports.clone()).map(Arc::new);
    channels.extend(stdin.clone().map(|stdin| stdin as Arc<dyn Channel>));
    channels.extend(telegram.map(|telegram| Arc::new(telegram) as Arc<dyn Channel>));
    channels.extend(webhook_secret.zip(callbacks.clone()).map(|(secret, client)| {
        Arc::new(CallbackChannel::new(secret, client, clock.clone(), links)) as Arc<dyn Channel>
    }));
    channels.extend(WatchdogChannel::from_service_manager().map(|watchdog| Arc::new(watchdog) as Arc<dyn Channel>));

    let reloadable =
        Reloadable { allow_lists: allow_lists.clone(), prices: chosen.prices, llm: chosen.config, keys: chosen.keys };
    let agent = AgentParts {
        outgoing,
        callbacks,
        pairing,
        config: settings.agent.clone(),
        limits: settings.limits.clone(),
        rules: stop_rules(settings),
        queue: settings.queue.clone(),
        approvals: settings.approvals.clone(),
        compaction: settings.compaction.clone(),
        memory: settings.memory.clone(),
        streaming: settings.streaming.clone(),
        sessions: settings.sessions.clone(),
        routines: settings.routines.clone(),
        heartbeat: settings.heartbeat.clone(),
        jobs: settings.jobs.clone(),
        health: settings.tools.health.clone(),
        processes: programs.processes(),
        hooks: hooks.bound(),
        outputs: Some(programs.outputs()),
        model: chosen.provider,
        tools: std::mem::take(&mut programs.tools),
        channels,
        absent: absent(allow_lists),
        store: ports,
        clock,
        boot: BootId::new(),
        version: VERSION.into(),
        max_tokens: settings.llm.max_tokens,
        max_attempts: settings.llm.max_attempts,
        ready: ready_tx,
        workers,
        context: programs.context(),
    };
    let programs = programs.handle();
    Ok(Assembled {
        agent,
        gateway,
        stdin,
        notice: chosen.notice,
        programs,
        hooks,
        workers: served,
        janitor,
        backups,
        recorder,
        traces,
        reloadable,
    })
}

/// The client of callbacks, if there is a secret to sign them with.
fn callback_client(settings: &Settings, is_signed: bool) -> Result<Option<Arc<dyn CallbackClient>>, Failure> {
    if !is_signed {
        return Ok(None);
    }
    let client = CallbackPoster::new(&settings.tools.web).map_err(|problem| Failure::new(Exit::Refused, problem))?;
    Ok(Some(Arc::new(client)))
}

impl Parts {
    /// A notice about the choice of the model: for the rehearsal, how to configure a model.
    pub(crate) fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// Starts all parts. The daemon is ready when this returns.
    ///
    /// # Errors
    /// A channel or the store fails; everything is ended again.
    pub(crate) async fn start(
        self,
        root: &CancellationToken,
        mut signals: SignalWatch,
        settings: Source,
    ) -> Result<Running, Failure> {
        let address = self.gateway.addr();
        let gateway_stop = CancellationToken::new();
        let (signals_end, reloads) = (signals.handle(), signals.reloads());
        let mut tasks = JoinSet::new();
        let root_of_signals = root.clone();
        tasks.spawn(async move {
            signals.watch(root_of_signals).await;
            Ended::Signals
        });
        let stop = gateway_stop.clone();
        let gateway = self.gateway;
        tasks.spawn(async move { Ended::Gateway(gateway.serve(stop).await) });
        if let Some(Workers { server, host }) = self.workers {
            let stop = gateway_stop.clone();
            tasks.spawn(async move {
                server.serve(stop).await;
                host.close().await;
                Ended::Connections
            });
        }
        let (janitor, stop) = (self.janitor, gateway_stop.clone());
        tasks.spawn(async move {
            janitor.work(stop).await;
            Ended::Janitor
        });
        let (backups, stop) = (self.backups, gateway_stop.clone());
        tasks.spawn(async move {
            backups.work(stop).await;
            Ended::Backups
        });
        let (recorder, stop) = (self.recorder, gateway_stop.clone());
        tasks.spawn(async move {
            recorder.upkeep(stop).await;
            Ended::Recorder
        });
        if let Some(traces) = self.traces {
            let stop = gateway_stop.clone();
            tasks.spawn(async move {
                traces.work(stop).await;
                Ended::Traces
            });
        }
        let keeping = self.programs.keep(self.ready.clone(), gateway_stop.clone());
        tasks.spawn(async move {
            keeping.await;
            Ended::Connections
        });

        let agent = Agent::start(self.agent).await;
        let mut running = Running {
            tasks,
            agent: None,
            root: root.clone(),
            gateway_stop,
            signals_end,
            store: self.store,
            stdin: self.stdin,
            programs: self.programs,
            hooks: self.hooks,
            address,
            model: self.model,
            ready: self.ready,
        };
        match agent {
            Ok(agent) => {
                if let Some(requests) = reloads {
                    let reload = Reload::new(settings, self.reloadable, agent.reloader(), running.describe());
                    let work = Box::pin(reload.work(requests, running.gateway_stop.clone())); // it holds all settings
                    running.tasks.spawn(async move {
                        work.await;
                        Ended::Reloads
                    });
                }
                let root = root.clone();
                let task = running.tasks.spawn(async move { Ended::Agent(agent.run(root).await) });
                running.agent = Some(task.id());
                Ok(running)
            }
            Err(error) => {
                running.end_the_rest();
                running.join().await;
                Err(agent_failure(&error))
            }
        }
    }
}

/// The running daemon. All tasks are in `tasks`; `wait` joins them.
pub(crate) struct Running {
    tasks: JoinSet<Ended>,
    /// The task id of the agent, to recognise it when it panics.
    agent: Option<Id>,
    /// Cancelled by a signal, or when a part fails.
    root: CancellationToken,
    /// Cancelled when the agent has drained: until then, status and stop requests work.
    gateway_stop: CancellationToken,
    signals_end: Handle,
    store: Store,
    /// The prompt must end before the process, or the terminal would stay in the prompt's mode.
    stdin: Option<Arc<StdinChannel>>,
    /// Closed before the store: no process of a run outlives the daemon, however the daemon ends.
    programs: ProgramsHandle,
    hooks: HookSet,
    address: Option<SocketAddr>,
    model: ModelInfo,
    ready: watch::Receiver<bool>,
}

/// A part that has ended.
enum Ended {
    Agent(AgentExit),
    Gateway(Result<(), GatewayError>),
    Signals,
    Reloads,
    /// The connections to MCP servers.
    Connections,
    Janitor,
    Backups,
    Recorder,
    Traces,
}

impl Running {
    /// One line about the address and the model.
    pub(crate) fn describe(&self) -> String {
        let place = self.address.map_or("on the control socket".to_owned(), |address| format!("on http://{address}"));
        let model = if self.model.rehearsal {
            "rehearsal, a built-in stand-in".to_owned()
        } else {
            format!("{} by {}", self.model.model, self.model.provider)
        };
        format!("ready {place} (model: {model})")
    }

    /// Shows a line above the prompt. `false`: there is no prompt.
    pub(crate) async fn say_above_prompt(&self, text: &str) -> bool {
        let Some(stdin) = self.stdin.as_ref().filter(|stdin| stdin.has_prompt()) else { return false };
        // As for stderr: if the terminal is closed, nobody can be told.
        let _ = stdin.say(&format!("belay: {text}")).await;
        true
    }

    /// Waits until the agent has drained and ended, ends the other parts, and closes the store.
    pub(crate) async fn wait(mut self) -> Exit {
        let mut exit = Exit::Fine;
        let announce = announce_drain(self.ready.clone());
        let watch_parts = async {
            while let Some(ended) = self.tasks.join_next().await {
                match ended {
                    Ok(Ended::Agent(why)) => {
                        info!(?why, "agent ended");
                        return;
                    }
                    Ok(
                        Ended::Signals
                        | Ended::Reloads
                        | Ended::Connections
                        | Ended::Janitor
                        | Ended::Backups
                        | Ended::Recorder
                        | Ended::Traces,
                    ) => {}
                    Ok(Ended::Gateway(ended)) => {
                        error!(?ended, "the gateway ended before the agent");
                        exit = Exit::Internal;
                        self.root.cancel();
                    }
                    Err(broken) => {
                        report(&broken);
                        exit = Exit::Internal;
                        if self.agent == Some(broken.id()) {
                            return;
                        }
                        self.root.cancel();
                    }
                }
            }
        };
        tokio::join!(watch_parts, announce);
        self.end_the_rest();
        self.join().await;
        exit
    }

    fn end_the_rest(&self) {
        self.gateway_stop.cancel();
        self.signals_end.close();
    }

    async fn join(mut self) {
        if let Some(stdin) = &self.stdin {
            stdin.close().await;
        }
        while let Some(ended) = self.tasks.join_next().await {
            match ended {
                Ok(Ended::Gateway(Err(error))) => error!(%error, "the gateway ended badly"),
                Ok(_) => {}
                Err(broken) => report(&broken),
            }
        }
        if !self.hooks.close(HOOKS_GRACE).await {
            tracing::warn!("some hooks did not end in time");
        }
        self.programs.close().await;
        self.store.close().await;
    }
}

fn report(broken: &JoinError) {
    error!(%broken, "a part of the daemon broke");
}

/// Notifies the service manager when the drain begins: when messages are no longer accepted.
async fn announce_drain(mut ready: watch::Receiver<bool>) {
    // An error means that the agent has ended, which ends the drain too.
    let _ = ready.wait_for(|ready| !ready).await;
    systemd::stopping();
}

/// Formats messages as a recorded trajectory, in the format of `belay stops check`.
fn recording(messages: &[Arc<Message>]) -> String {
    let events = from_messages(messages.iter().map(|message| &**message));
    events.iter().map(|event| event.to_line() + "\n").collect()
}

fn stdin(settings: &Settings, env: &Environment, paths: &Paths, ports: StorePorts) -> Option<StdinChannel> {
    let configured = &settings.channels.stdin;
    let llm = &settings.llm;
    let models =
        std::iter::once(&llm.model).chain(llm.fallbacks.iter().map(|it| &it.model)).flatten().cloned().collect();
    let completions = Completion::over(StoreLists { ports, models });
    let config = StdinConfig {
        colour: configured.colour && env.has_colour(),
        dumb: env.has_dumb_terminal(),
        history_file: configured.history.then(|| match configured.history_file.as_deref() {
            Some(path) => expand(path, env),
            None => paths.history(),
        }),
        ..configured.clone()
    };
    StdinChannel::open(&config, Some(completions))
}

/// The access rules of channels, by their settings. They also hold while a channel is disabled.
fn absent(telegram: AllowLists) -> DisabledChannels {
    DisabledChannels::from([
        ("stdin".into(), Arc::new(Operators) as Arc<dyn ChannelAccess>),
        ("telegram".into(), Arc::new(telegram)),
    ])
}

/// Pairing, with the people whom earlier starts have admitted. `None`: no channel admits people by pairing.
async fn pairing(
    settings: &Settings,
    lists: &AllowLists,
    ports: &StorePorts,
    clock: Arc<dyn Clock>,
) -> Result<Option<Arc<Pairing>>, Failure> {
    let config = &settings.channels.telegram;
    if !config.enabled && !config.pairing {
        return Ok(None);
    }
    let people = vec![("telegram".into(), Arc::new(lists.clone()) as Arc<dyn ChannelPeople>)];
    let pairing = Pairing::load(ports.people.clone(), clock, people).await;
    pairing.map(|pairing| Some(Arc::new(pairing))).map_err(|error| Failure::new(Exit::OutOfReach, words(&error)))
}

fn telegram(
    settings: &Settings,
    secrets: Option<TelegramSecrets>,
    lists: &AllowLists,
    pairing: Option<Arc<Pairing>>,
    attachments: Arc<dyn AttachmentIntake>,
    texts: Arc<dyn TextChecker>,
) -> Result<Option<Telegram>, Failure> {
    let Some(secrets) = secrets else { return Ok(None) };
    let builder = if is_plain_loopback(&settings.channels.telegram.api_base) {
        plain_client().no_proxy()
    } else {
        reqwest::Client::builder()
    };
    let http = bot_api_client(builder.connect_timeout(PLATFORM_CONNECT_LIMIT).tcp_nodelay(true));
    let http = http.map_err(|error| Failure::new(Exit::Internal, words(&error)))?;
    let codes = pairing.map(|pairing| pairing as Arc<dyn PairingCodes>);
    let parts = TelegramParts { lists: lists.clone(), codes, commands: menu(), attachments, texts };
    let telegram = Telegram::new(settings.channels.telegram.clone(), secrets, http, parts);
    telegram.map(Some).map_err(|error| Failure::new(Exit::Refused, error))
}

pub(crate) fn gateway_failure(error: &GatewayError) -> Failure {
    let failure = |exit| Failure::new(exit, error);
    match error {
        GatewayError::Config(_) | GatewayError::Insecure(_) | GatewayError::Group { .. } => failure(Exit::Refused),
        GatewayError::SocketInUse(_) => failure(Exit::Busy).next("`belay status` asks it, `belay shutdown` ends it"),
        GatewayError::Resolve { .. } | GatewayError::Listen { .. } | GatewayError::Socket { .. } => {
            failure(Exit::OutOfReach)
        }
    }
}

pub(crate) fn agent_failure(error: &AgentError) -> Failure {
    let exit = match error {
        AgentError::Channel(_) => Exit::OutOfReach,
        AgentError::NoChannel
        | AgentError::ExecutorTool { .. }
        | AgentError::HookTools(_)
        | AgentError::Heartbeat(_)
        | AgentError::Titles(_) => Exit::Refused,
        AgentError::Store(_) => Exit::OutOfReach,
        AgentError::ChannelName(_) => Exit::Internal,
    };
    Failure::new(exit, words(error))
}

/// The message of an error with its causes: in many libraries only the last one says what is wrong.
pub(crate) fn words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_words = cause.to_string();
        if !words.contains(&cause_words) {
            words.push_str(&format!(": {cause_words}"));
        }
        source = cause.source();
    }
    words
}
