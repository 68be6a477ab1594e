//! Everything that tools use to act: processes, the sandbox, kept outputs, MCP servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use belay_agent::Reloader;
use belay_exec::Processes;
use belay_program::causes::words;
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::paths::{Paths, private_directory};
use belay_protocol::{
    AttachmentIntake, Clock, ContextSource, EventLog, NoteStore, OutgoingFiles, OutputKeeper, PinStore, RunProcesses,
    RunReader, ServerLogins, Tool, Transcriber, WorkerHost,
};
use belay_settings::secrets::skill_keys;
use belay_settings::{OUTPUTS, Settings, expand, refused as refuse_settings, workspace_of};
use belay_tools::attachments::{Attachments, AttachmentsParts};
use belay_tools::context::{SkillNeeds, WorkspaceContext};
use belay_tools::outgoing::WorkspaceFiles;
use belay_tools::processes::{BackgroundParts, BackgroundProcesses, Limits};
use belay_tools::sandbox::LazySandbox;
use belay_tools::worker::SandboxHost;
use belay_tools::{KeptOutputs, Meaning, RunEnds, ToolsConfig, ToolsParts, sweep};
use metrics::{counter, describe_counter};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::process_needs::{IsMember, ProcessNeeds};
use crate::servers::Servers;
use crate::store::{Shared, Store};

/// The file in the data directory that remembers a successful test of the sandbox.
const SANDBOX_PROBE: &str = "sandbox-probe";

/// The approved descriptions of a cluster.
type SharedPins = Arc<dyn PinStore>;

/// The tools, and what they use to act.
pub struct Programs {
    /// The tools that the model is offered.
    pub tools: Vec<Arc<dyn Tool>>,
    /// The directory of the file tools.
    workspace: PathBuf,
    outputs: KeptOutputs,
    processes: Arc<Processes>,
    background: Arc<BackgroundProcesses>,
    sandbox: LazySandbox,
    context: Arc<WorkspaceContext>,
    servers: Servers,
}

/// Further ports that tools need from the daemon.
pub struct ToolPorts {
    /// Notes over conversations.
    pub notes: Arc<dyn NoteStore>,
    /// The search for notes by meaning.
    pub meaning: Option<Meaning>,
    /// Past runs.
    pub runs: Arc<dyn RunReader>,
    /// The clock for dates and times.
    pub clock: Arc<dyn Clock>,
    /// The log of events of tools; `None`: they record none.
    pub events: Option<Arc<dyn EventLog>>,
    /// The files that the nodes of a cluster share; `None`: the daemon uses files of its own.
    pub shared: Option<Shared>,
    /// Whether MCP servers that start slowly are waited for, because no later run could use them.
    pub patient: bool,
}

impl Programs {
    /// Builds all tools. Takes some milliseconds. MCP servers that are new, or have new settings, are asked for their
    /// tools, which takes at most 10 s, or with `patient` as long as the slowest of them. [`ProgramsHandle::keep`] waits
    /// for those that are late, asks the others and tests the sandbox after the start.
    ///
    /// # Errors
    /// The failure that prevents a start. Programs that were started meanwhile are ended.
    pub async fn open(
        settings: &Settings,
        env: &Environment,
        paths: &Paths,
        ports: ToolPorts,
    ) -> Result<Self, Failure> {
        let workspace = workspace_of(settings, env, paths);
        private_directory(&workspace).map_err(|error| {
            Failure::new(Exit::Refused, error).next("set tools.workspace to a directory that may be written")
        })?;
        let swept = workspace.clone();
        match tokio::task::spawn_blocking(move || sweep(&swept)).await {
            Ok(0) => {}
            Ok(files) => tracing::info!(files, "temporary files of writes that a crash cut off were removed"),
            Err(error) => tracing::warn!(%error, "the workspace was not swept"),
        }
        let refused = |error: &dyn std::error::Error| Failure::new(Exit::Refused, words(error));
        let is_cluster = ports.shared.is_some();
        let (outputs, pins, membership) = places(ports.shared, settings, paths)?;
        let needs = ProcessNeeds { membership, ..ProcessNeeds::find(settings, env, paths)? };
        let needs = needs.remembering(paths.data.join(SANDBOX_PROBE));
        let processes = needs.processes.clone();
        match tokio::task::spawn_blocking(move || processes.end_left_behind()).await {
            Ok(0) => {}
            Ok(processes) => {
                tracing::warn!(processes, "processes of a daemon that was killed were still alive; they are killed")
            }
            Err(error) => tracing::warn!(%error, "processes of a daemon that was killed were not looked for"),
        }
        let mut servers = Servers::build(&needs, settings, env, paths, (pins, ports.patient))?;
        let context = surroundings(settings, env, &workspace)?;
        let config = ToolsConfig { workspace: Some(workspace.clone()), ..settings.tools.clone() };
        let limits = Limits { may_outlive_runs: !is_cluster, ..Limits::of(config.commands.background) };
        let background = background(limits, paths, ports.events.map(|events| (events, ports.clock.clone())));
        let parts = ToolsParts {
            notes: ports.notes,
            meaning: ports.meaning,
            clock: ports.clock,
            outputs: outputs.clone(),
            runs: ports.runs,
            processes: needs.processes.clone(),
            sandbox: needs.sandbox.clone(),
            background: background.clone(),
        };
        let mut tools = belay_tools::builtin(&config, parts).map_err(|error| refused(&error))?;
        tools.extend(servers.recall(settings).await?);
        tools.extend(context.tools());
        // Once, so that commands that name a skill are known before the first message.
        context.skills().await;
        Ok(Self {
            context: Arc::new(context),
            tools,
            workspace,
            outputs,
            processes: needs.processes,
            background,
            sandbox: needs.sandbox,
            servers,
        })
    }

    /// The port that ends the processes of runs, MCP servers included.
    pub fn processes(&self) -> Arc<dyn RunProcesses> {
        Arc::new(RunEnds::new(self.processes.clone(), self.servers.sessions(), self.background.clone()))
    }

    /// The logins at MCP servers; `None`: no server can have one.
    pub fn logins(&self) -> Option<Arc<dyn ServerLogins>> {
        self.servers.logins()
    }

    /// The manager of all processes of the daemon, for runs and hooks.
    pub fn kept(&self) -> Arc<Processes> {
        self.processes.clone()
    }

    /// The sandbox of commands; `None`: there are no commands.
    pub fn command_sandbox(&self, settings: &Settings) -> Option<LazySandbox> {
        let has_commands = settings.tools.commands.enabled() || settings.tools.shell.enabled;
        has_commands.then(|| self.sandbox.clone())
    }

    /// The port for the context of runs.
    pub fn context(&self) -> Arc<dyn ContextSource> {
        self.context.clone()
    }

    /// Returns the host that starts workers in the sandbox of commands. If no earlier start has tested the sandbox
    /// successfully, tests it first, because the caller asks next whether it works.
    pub async fn worker_host(&self) -> Arc<dyn WorkerHost> {
        let _ = self.sandbox.get().await; // the host reports what is missing
        Arc::new(SandboxHost::new(self.processes.clone(), self.sandbox.clone()))
    }

    /// Takes files of messages.
    ///
    /// # Errors
    /// The program of Belay is not found.
    pub fn attachments(
        &self,
        settings: &Settings,
        store: &Store,
        clock: Arc<dyn Clock>,
        transcriber: Option<Arc<dyn Transcriber>>,
    ) -> Result<Arc<dyn AttachmentIntake>, Failure> {
        let parts = AttachmentsParts {
            blobs: store.ports().blobs,
            uploads: store.uploads(),
            clock,
            processes: self.processes.clone(),
            program: std::env::current_exe().map_err(|error| Failure::new(Exit::Internal, error))?,
            transcriber,
        };
        Ok(Arc::new(Attachments::new(settings.attachments.clone(), parts)))
    }

    /// Reads the files of the workspace that runs send; `None`: they send none.
    ///
    /// # Errors
    /// The workspace cannot be opened.
    pub fn outgoing(&self, settings: &Settings, store: &Store) -> Result<Option<Arc<dyn OutgoingFiles>>, Failure> {
        if !settings.agent.send_file {
            return Ok(None);
        }
        let opened = WorkspaceFiles::open(&self.workspace, store.ports().blobs, settings.attachments.max_bytes);
        let files = opened.map_err(|error| Failure::new(Exit::Refused, words(&error)))?;
        Ok(Some(Arc::new(files)))
    }

    /// The kept outputs, for the janitor.
    pub fn kept_outputs(&self) -> KeptOutputs {
        self.outputs.clone()
    }

    /// The port that keeps long outputs.
    pub fn outputs(&self) -> Arc<dyn OutputKeeper> {
        Arc::new(self.outputs.clone())
    }

    /// The handles for ending all programs.
    pub fn handle(&self) -> ProgramsHandle {
        ProgramsHandle {
            processes: self.processes.clone(),
            background: self.background.clone(),
            sandbox: self.sandbox.clone(),
            context: self.context.clone(),
            servers: self.servers.clone(),
        }
    }
}

/// Background processes that have ended, by the reason.
const BACKGROUND_ENDED: &str = "belay_background_processes_ended_total";

/// Background processes, whose outputs are in the data directory.
fn background(
    limits: Limits,
    paths: &Paths,
    events: Option<(Arc<dyn EventLog>, Arc<dyn Clock>)>,
) -> Arc<BackgroundProcesses> {
    describe_counter!(BACKGROUND_ENDED, "Background processes that have ended, by the reason");
    let parts = BackgroundParts { directory: paths.data.clone(), events, count_end: count_background_end };
    Arc::new(BackgroundProcesses::new(parts, limits))
}

fn count_background_end(how: &'static str) {
    counter!(BACKGROUND_ENDED, "reason" => how).increment(1);
}

/// The places of long outputs and of approved descriptions, and whether this node may act for its runs. Only the nodes of a
/// cluster share the places.
fn places(
    shared: Option<Shared>,
    settings: &Settings,
    paths: &Paths,
) -> Result<(KeptOutputs, Option<SharedPins>, Option<IsMember>), Failure> {
    let config = &settings.tools.outputs;
    match shared {
        Some(Shared { outputs, pins, membership }) => {
            Ok((KeptOutputs::in_database(outputs, config), Some(pins), Some(membership)))
        }
        None => {
            let outputs = KeptOutputs::open(&paths.data.join(OUTPUTS), config);
            let outputs = outputs.map_err(|error| Failure::new(Exit::Refused, words(&error)))?;
            Ok((outputs, None, None))
        }
    }
}

/// Opens the files of the workspace and the skills, with the keys and settings that skills require.
fn surroundings(settings: &Settings, env: &Environment, workspace: &Path) -> Result<WorkspaceContext, Failure> {
    let needs = SkillNeeds {
        keys: skill_keys(settings, env).map_err(|problems| refuse_settings(&problems))?,
        settings: serde_json::to_value(settings).unwrap_or_default(), // plain data: it always serialises
    };
    let dirs = settings.skills.dirs.iter().map(|dir| expand(dir, env)).collect();
    let skills = settings.skills.with_dirs(dirs);
    WorkspaceContext::open(workspace, &settings.context, &skills, &settings.tools.commands, needs)
        .map_err(|error| Failure::new(Exit::Refused, words(&error)))
}

/// Ends all programs.
pub struct ProgramsHandle {
    processes: Arc<Processes>,
    background: Arc<BackgroundProcesses>,
    sandbox: LazySandbox,
    context: Arc<WorkspaceContext>,
    servers: Servers,
}

impl ProgramsHandle {
    /// Reaps orphans until it is stopped. From readiness on, does what no message waits for: finds the time zone, tests
    /// the sandbox, so that the log reports problems before the first command, asks known MCP servers again, and closes
    /// unused connections to MCP servers.
    pub fn keep(
        &self,
        mut ready: watch::Receiver<bool>,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (servers, sandbox, processes) = (self.servers.clone(), self.sandbox.clone(), self.processes.clone());
        let context = self.context.clone();
        let keep = async move {
            let background = async {
                // An error means that the start has failed; the caller stops this soon.
                let _ = ready.wait_for(|ready| *ready).await;
                // If it panics, the first date finds the zone.
                let _ = tokio::task::spawn_blocking(move || context.prepare()).await;
                verify(&sandbox).await;
                servers.refresh().await;
            };
            let background = async {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = background => {}
                }
            };
            tokio::join!(background, servers.keep(stop.clone()));
        };
        async move {
            tokio::select! {
                () = keep => {}
                never = processes.reap_orphans() => match never {},
            }
        }
    }

    /// Shows the MCP servers that are left out, offers the tools of those that are late as they come, and follows the logins at
    /// servers. Returns when it is stopped.
    pub fn offer_late(&self, agent: Reloader, stop: CancellationToken) -> impl Future<Output = ()> + Send + use<> {
        self.servers.offer_late(agent, stop)
    }

    /// Ends all running programs; none can start after that. Waits for renewals of logins before, for 2 s at most.
    pub async fn close(&self) {
        self.servers.settle_logins().await;
        tokio::join!(self.background.close(), self.processes.shutdown());
    }
}

/// Tests the sandbox, also if an earlier start has tested it.
async fn verify(sandbox: &LazySandbox) {
    let recalled = sandbox.is_recalled();
    let Err(missing) = sandbox.verify().await else { return };
    if recalled {
        tracing::warn!(%missing, "the sandbox worked at an earlier start and does not work now: commands are refused");
    } else {
        tracing::warn!(%missing, "commands are refused: there is no sandbox");
    }
}
