//! The composition root: the only module that knows every concrete type.
//!
//! The types show the lifecycle: [`build`] returns [`Parts`], which are bound but not running. [`Parts::start`] returns
//! [`Running`]. Only a `Running` can be waited for.

#[cfg_attr(not(feature = "adapters"), path = "wiring/no_adapters.rs")]
mod adapters;
mod background;
mod channels;
mod completion;
mod descriptors;
#[cfg_attr(not(feature = "otlp"), path = "wiring/no_exporters.rs")]
mod exporters;
#[cfg(feature = "metrics")]
mod latency;
mod machine;
mod metrics;
mod process;
#[cfg_attr(not(feature = "metrics"), path = "wiring/no_prometheus.rs")]
mod prometheus;
mod reads;
mod running;
mod starting;
mod workers;

use std::future::pending;
use std::sync::Arc;

use belay_agent::{Agent, AgentParts, LeaseKeeper, OwnTexts};
use belay_channels::StdinChannel;
use belay_gateway::{CallbackChannel, Gateway, GatewayConfig, GatewayParts, KeptSecrets, Models, SettingsSource};
use belay_hooks::HookSet;
use belay_maintenance::{BackupKeeper, Kept, RetentionJanitor};
use belay_parts::{
    Chosen, Node, NotStarted, Programs, ProgramsHandle, Store, ToolPorts, agent_failure, agent_texts, gateway_failure,
    hooks, meaning, transcriber, until_ended,
};
use belay_program::VERSION;
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::paths::Paths;
use belay_program::systemd::WatchdogChannel;
use belay_protocol::{Channel, Event, Message, ModelInfo};
use belay_settings::secrets::Secrets;
use belay_settings::stop_rules;
use belay_settings::{Loaded, Settings, SettingsArgs, refuse_own_files, refused, workspace_of};
use belay_telemetry::LogQueue;
use belay_trajectory::import::from_messages;
use futures_util::FutureExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use adapters::Adapters;
use background::Background;
use channels::{
    PlatformServices, absent, callback_client, further, leased_channels, pairing, platforms, stdin, telegram,
};
use exporters::Exporters;
use machine::Machine;
use metrics::{Figures, Recorder, figures};
use running::Ended;
pub(crate) use running::{Running, drain_limit};
pub(crate) use starting::Starting;
use workers::Workers;

use crate::platform_people::PlatformPeople;
use crate::reload::{Reload, Reloadable, Source};
use crate::routine_times::Times;

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
    adapters: Adapters,
    recorder: Recorder,
    figures: Figures,
    exporters: Exporters,
    model: ModelInfo,
    /// A notice about the choice of the model, for the person.
    notice: Option<String>,
    reloadable: Reloadable,
    ready: watch::Receiver<bool>,
    /// Claims the work that one node of a cluster does at a time.
    keeper: Option<LeaseKeeper>,
}

/// Builds the daemon. `log_queue`: the log lines for the collector. Waits for a database server that is away.
///
/// # Errors
/// The failure that prevents a start, with its exit code, or a signal. What was opened is closed again.
pub(crate) async fn build(
    starting: &Starting,
    loaded: &Arc<Loaded>,
    args: &SettingsArgs,
    env: &Environment,
    paths: &Paths,
    log_queue: Option<LogQueue>,
) -> Result<Parts, NotStarted> {
    let settings = &loaded.settings;
    refuse_own_files(settings, env, paths)?;
    let secrets = Secrets::find(loaded, env).map_err(|problems| refused(&problems))?;
    paths.make_directories().map_err(|error| {
        Failure::new(Exit::OutOfReach, error).next("set XDG_DATA_HOME (or STATE_DIRECTORY) to a writable directory")
    })?;
    // Concurrently: one waits for the disk, the other for a server that may listen on loopback.
    let stop = starting.root.child_token();
    let chosen = async {
        let chosen = until_ended(&stop, pending(), Chosen::find(settings, &secrets)).await;
        chosen.inspect_err(|_| stop.cancel()) // the store may wait for its server
    };
    let (store, chosen) = tokio::join!(Store::open(settings, paths, env, &starting.wait, &stop), chosen);
    let (store, chosen) = match (store, chosen) {
        (Err(NotStarted::Stopped), Err(refused)) => return Err(refused),
        (store, chosen) => (store?, chosen),
    };
    let assembled = async {
        let source = reads::settings(loaded, args, env, paths);
        let assembled = Box::pin(assemble(settings, env, paths, secrets, &store, chosen?, (source, log_queue)));
        until_ended(&stop, store.lost(), assembled).await
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
            adapters,
            recorder,
            figures,
            exporters,
            reloadable,
            keeper,
        }) => Ok(Parts {
            model: agent.model.info().clone(),
            ready: agent.ready.subscribe(),
            agent,
            gateway,
            store,
            stdin,
            programs,
            hooks,
            workers,
            janitor,
            backups,
            adapters,
            recorder,
            figures,
            exporters,
            notice,
            reloadable,
            keeper,
        }),
        Err(NotStarted::Failed(failure)) => {
            store.close().await;
            Err(failure.into())
        }
        Err(ended) => {
            store.abandon().await;
            Err(ended)
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
    adapters: Adapters,
    recorder: Recorder,
    figures: Figures,
    exporters: Exporters,
    reloadable: Reloadable,
    keeper: Option<LeaseKeeper>,
}

async fn assemble(
    settings: &Settings,
    env: &Environment,
    paths: &Paths,
    secrets: Secrets,
    store: &Store,
    chosen: Chosen,
    (settings_source, log_queue): (SettingsSource, Option<LogQueue>),
) -> Result<Assembled, Failure> {
    let (ports, clock, shared) = (store.ports(), store.clock(), store.shared(settings));
    let (ready_tx, ready) = watch::channel(false);
    let meaning = meaning(settings, secrets.embeddings.as_ref(), store.note_vectors())?;
    let embedder = meaning.as_ref().map(|meaning| meaning.embedder.clone());
    let (notes, runs, events) = (ports.notes.clone(), ports.runs.clone(), Some(ports.events.clone()));
    let tool_ports = ToolPorts { notes, meaning, runs, events, clock: clock.clone(), shared, patient: false };
    let mut programs = Programs::open(settings, env, paths, tool_ports).await?;
    if let Some(node) = store.node() {
        node.check_workspace(&workspace_of(settings, env, paths)).await?;
    }
    let hooks = hooks(settings, env, programs.kept())?;
    let transcriber = transcriber(settings, secrets.transcription.as_ref())?;
    let attachments = programs.attachments(settings, store, clock.clone(), transcriber)?;
    let people = PlatformPeople::load(&settings.channels, &*store.moves()).await?;
    let pairing = pairing(settings, &people.telegram, &ports, clock.clone()).await?;
    let texts = OwnTexts::new(hooks.bound(), clock.clone());
    let texts = Arc::new(texts.map_err(|error| agent_failure(&error))?);
    let services = PlatformServices::new(attachments.clone(), texts, store.moves(), ports.blobs.clone());
    let further = further(settings, (secrets.matrix, secrets.mail), &people, &services, &store.cursors())?;
    let telegram = telegram(settings, secrets.telegram, &people.telegram, pairing.clone(), services)?;
    let adapters = Adapters::new(settings, secrets.adapters, &store.cursors())?;
    let node = store.node();
    let (keeper, held) = node.map(|node| node.leases(leased_channels(telegram.as_ref(), &further))).unzip();
    let (archive, sessions) = (ports.archive.clone(), settings.sessions.clone());
    let (routine_runs_days, hours) = (settings.routines.keep_routine_runs_days, settings.gateway.openai_session_hours);
    let kept = Kept { outputs: programs.kept_outputs(), blobs: ports.blobs.clone(), uploads: store.uploads() };
    let janitor = RetentionJanitor::new(sessions, routine_runs_days, hours, archive, kept, clock.clone());
    let janitor = Arc::new(janitor.under_lease(held.clone()));
    let backups = Arc::new(BackupKeeper::open(settings, env, paths, clock.clone())?);
    let links = Arc::new(store.links(settings.attachments.link_hours, clock.clone()));
    let outgoing = programs.outgoing(settings, store)?;

    let webhook_secret = secrets.gateway.webhook_secret.clone();
    let (headers, model) = (secrets.otlp_headers.as_ref(), chosen.provider.info());
    let sources = (ports.events.clone(), ports.runs.clone());
    let (recorder, exporters) = Exporters::open(&settings.telemetry, headers, log_queue, model, sources)?;
    let figures = figures(store.stats());
    let database_losses = store.losses();
    database_losses.iter().for_each(|loss| warn!(noticed_at = %loss.noticed_at.to_rfc3339(), "{}", loss.detail));
    let max_connections = descriptors::connections(settings.gateway.max_connections);
    let (gateway, http) = Gateway::bind(GatewayParts {
        config: GatewayConfig { max_connections, ..settings.gateway.clone() },
        secrets: secrets.gateway,
        runs: ports.runs.clone(),
        sessions: ports.sessions.clone(),
        health: ports.health.clone(),
        events: ports.events.clone(),
        clock: clock.clone(),
        models: Models { chat: chosen.provider.info().clone(), embedder },
        version: VERSION.into(),
        metrics: recorder.renderer(figures.clone(), clock.clone()),
        trajectory: Arc::new(recording),
        approvals: ports.approvals.clone(),
        archive: ports.archive.clone(),
        notes: ports.note_archive.clone(),
        kept: KeptSecrets::new(ports.vault.clone(), programs.logins()),
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
        database_losses,
        cluster: node.map(Node::view),
        attachments,
        blobs: ports.blobs.clone(),
        links: links.clone(),
        texts: agent_texts(&hooks),
        extra: telegram.as_ref().and_then(|telegram| telegram.router()).into_iter().chain(adapters.routers()).collect(),
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
    channels.extend(platforms(telegram, further, held.as_ref()).chain(adapters.channels()));
    channels.extend(webhook_secret.zip(callbacks.clone()).map(|(secret, client)| {
        Arc::new(CallbackChannel::new(secret, client, clock.clone(), links)) as Arc<dyn Channel>
    }));
    channels.extend(WatchdogChannel::from_service_manager().map(|watchdog| Arc::new(watchdog) as Arc<dyn Channel>));

    let (prices, llm, keys) = (chosen.prices, chosen.config, chosen.keys);
    let reloadable = Reloadable { people: people.clone(), prices, llm, keys };
    let agent = AgentParts {
        leases: node.zip(held).map(|(node, held)| node.delivery(held)),
        outgoing,
        callbacks,
        machine: Arc::new(Machine::new(&paths.data, programs.command_sandbox(settings))),
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
        absent: absent(people, Adapters::access(settings)),
        store: ports,
        clock,
        boot: store.boot(),
        cluster: node.map(Node::services),
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
        adapters,
        recorder,
        figures,
        exporters,
        reloadable,
        keeper,
    })
}

/// Formats the messages of a run as a recorded trajectory, in the format of `belay stops check`.
fn recording(messages: &[Arc<Message>], compactions: &[Event]) -> String {
    let events = from_messages(messages.iter().map(|message| &**message), compactions);
    events.iter().map(|event| event.to_line() + "\n").collect()
}

impl Parts {
    /// A notice about the choice of the model: for the rehearsal, how to configure a model.
    pub(crate) fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// Starts all parts. The daemon is ready when this returns.
    ///
    /// # Errors
    /// A channel or the store fails, the daemon is [`Lost`](belay_parts::Lost), or a signal comes; everything is ended again.
    pub(crate) async fn start(self, starting: Starting, settings: Source) -> Result<Running, NotStarted> {
        let address = self.gateway.addr();
        let gateway_stop = CancellationToken::new();
        let Starting { root, mut tasks, signals_end, lent, reloads, .. } = starting;
        self.stdin.iter().for_each(|stdin| stdin.lend_by(Arc::clone(&lent)));
        let stop = gateway_stop.clone();
        let (gauges, gateway) = (self.gateway.gauge_refresh(), self.gateway);
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
        tasks.spawn(self.adapters.serve(gateway_stop.clone()).map(|()| Ended::Connections));
        let (recorder, stop) = (self.recorder, gateway_stop.clone());
        tasks.spawn(async move {
            recorder.upkeep(stop).await;
            Ended::Recorder
        });
        self.exporters.start(&mut tasks, gauges, self.figures, &gateway_stop);
        tasks.spawn(self.programs.keep(self.ready.clone(), gateway_stop.clone()).map(|()| Ended::Connections));

        if let Some((node, keeper)) = self.store.node().zip(self.keeper) {
            let (stop, sweep, draining) =
                (gateway_stop.clone(), node.sweep(gateway_stop.clone()), node.announce_drain(self.ready.clone()));
            tasks.spawn(async move {
                // The leases are given up after the last delivery.
                tokio::join!(keeper.work(stop), sweep, draining);
                Ended::Node
            });
        }
        let agent = async { Agent::start(self.agent).await.map_err(|error| agent_failure(&error)) };
        let agent = Box::pin(until_ended(&root, self.store.lost(), agent)).await;
        let mut running = Running {
            tasks,
            agent: None,
            root,
            gateway_stop,
            signals_end,
            store: self.store,
            stdin: self.stdin,
            programs: self.programs,
            hooks: self.hooks,
            address,
            model: self.model,
            ready: self.ready,
            drain_limit: drain_limit(&settings.settings),
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
                let late = running.programs.offer_late(agent.reloader(), running.gateway_stop.clone());
                running.tasks.spawn(async move {
                    late.await;
                    Ended::Connections
                });
                let root = running.root.clone();
                let task = running.tasks.spawn(async move { Ended::Agent(agent.run(root).await) });
                running.agent = Some(task.id());
                Ok(running)
            }
            Err(ended) => {
                if matches!(ended, NotStarted::Lost(_)) {
                    running.lose().await;
                }
                running.end_the_rest();
                running.join(!matches!(ended, NotStarted::Failed(_))).await;
                Err(ended)
            }
        }
    }
}
