//! A workspace, the tools, and a call.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use belay_exec::{Processes, ProcessesConfig};
use belay_protocol::{
    CallPreview, Clock, Forgotten, Found, Generation, MemoryOwner, Message, NewNote, Note, NoteStore, Remembered,
    RunFilter, RunId, RunProcesses as _, RunReader, RunRecord, SaidQuery, StoreError, ToolContext, ToolFailure,
    ToolReply, ToolSet, UnixMillis,
};
use belay_tools::RunEnds;
use belay_tools::config::{CommandsConfig, ShellConfig};
use belay_tools::mcp::{McpSessions, ProcessTrees};
use belay_tools::processes::{BackgroundParts, BackgroundProcesses, Limits};
use belay_tools::sandbox::{Missing, Policy, Sandbox, SandboxConfig};
use belay_tools::{KeptOutputs, ToolsConfig, ToolsParts, builtin};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub(crate) struct Fixture {
    dir: TempDir,
    pub(crate) tools: ToolSet,
    pub(crate) processes: Arc<Processes>,
    pub(crate) background: Arc<BackgroundProcesses>,
}

/// The two ways in which commands run.
pub(crate) const BOTH: [Policy; 2] = [Policy::Off, Policy::WorkspaceWrite];

/// A fixture in which commands run by this policy.
pub(crate) fn fixture(policy: Policy) -> Fixture {
    fixture_with(SandboxConfig { policy, ..SandboxConfig::default() }, CommandsConfig::default())
}

pub(crate) fn fixture_with(sandbox: SandboxConfig, commands: CommandsConfig) -> Fixture {
    build(commands, |workspace| Sandbox::probe(&sandbox, workspace, Path::new(env!("CARGO_BIN_EXE_belay-launch"))))
}

/// A fixture without walls to be had.
pub(crate) fn fixture_without_sandbox() -> Fixture {
    build(CommandsConfig::default(), |_| Err(Missing("bubblewrap is not installed".to_owned())))
}

/// A fixture without a sandbox whose background processes have these limits.
pub(crate) fn fixture_with_limits(limits: Limits) -> Fixture {
    let sandbox = SandboxConfig { policy: Policy::Off, ..SandboxConfig::default() };
    let launcher = Path::new(env!("CARGO_BIN_EXE_belay-launch"));
    build_with(CommandsConfig::default(), limits, |workspace| Sandbox::probe(&sandbox, workspace, launcher))
}

fn build(commands: CommandsConfig, sandbox: impl FnOnce(&Path) -> Result<Sandbox, Missing>) -> Fixture {
    build_with(commands, Limits::of(8), sandbox)
}

fn build_with(
    commands: CommandsConfig,
    limits: Limits,
    sandbox: impl FnOnce(&Path) -> Result<Sandbox, Missing>,
) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let workspace = dir.path().join("workspace");
    std::fs::create_dir_all(workspace.join("sub")).unwrap();
    std::fs::write(dir.path().join("secret"), "secret of the outside").unwrap();
    let shell = ShellConfig { enabled: true };
    let config = ToolsConfig { workspace: Some(workspace.clone()), commands, shell, ..ToolsConfig::default() };
    assert_eq!(config.validate(), Vec::<String>::new());
    let processes = Arc::new(Processes::new(ProcessesConfig::default()).unwrap());
    let sandbox = sandbox(&workspace);
    if let Err(missing) = &sandbox {
        assert!(missing.0.contains("is not installed"), "{missing}");
    }
    let nowhere = BackgroundParts { directory: dir.path().to_owned(), events: None, count_end: |_| {} };
    let background = Arc::new(BackgroundProcesses::new(nowhere, limits));
    let parts = ToolsParts {
        notes: Arc::new(Nothing),
        meaning: None,
        clock: Arc::new(Nothing),
        outputs: KeptOutputs::open(&dir.path().join("outputs"), &config.outputs).unwrap(),
        runs: Arc::new(Nothing),
        processes: processes.clone(),
        sandbox: sandbox.into(),
        background: background.clone(),
    };
    Fixture { tools: ToolSet::new(builtin(&config, parts).unwrap()), processes, background, dir }
}

impl Fixture {
    /// A path in the workspace.
    pub(crate) fn inside(&self, name: &str) -> PathBuf {
        self.dir.path().join("workspace").join(name)
    }

    pub(crate) fn outside(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn context(&self) -> ToolContext {
        ToolContext {
            session: "s".into(),
            run_id: RunId::new(),
            call_id: "c1".into(),
            cancel: CancellationToken::new(),
            generation: Generation::default().renewed(),
            credential: None,
            progress: belay_protocol::Progress::default(),
            variables: std::sync::Arc::default(),
            approved: None,
            memory: belay_protocol::MemoryOwner::Group { session: "s".into() },
            untrusted: false,
            person: belay_protocol::PersonPort::default(),
            handle: belay_protocol::HandlePort::default(),
        }
    }

    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolReply, ToolFailure> {
        self.tools.get(tool).unwrap().call(arguments.as_object().unwrap(), context).await
    }

    /// Runs it, and sees that nothing of it is left.
    pub(crate) async fn run(&self, arguments: Value) -> Result<ToolReply, ToolFailure> {
        let context = self.context();
        let answer = self.call("run_command", arguments.clone(), &context).await;
        assert_eq!(self.processes.alive(context.run_id).len(), 0, "{arguments} left something running");
        answer
    }

    /// The text of what a command prints, which must end well.
    pub(crate) async fn argv(&self, argv: &[&str]) -> String {
        self.run(json!({ "argv": argv })).await.unwrap_or_else(|failure| panic!("{argv:?}: {failure:?}")).text
    }

    /// The text of what a command prints, which must fail.
    pub(crate) async fn failing(&self, argv: &[&str]) -> String {
        match self.run(json!({ "argv": argv })).await {
            Err(ToolFailure::Failed(text) | ToolFailure::Ended(text)) => text,
            other => panic!("{argv:?}: {other:?}"),
        }
    }

    pub(crate) async fn preview(&self, arguments: Value) -> Result<CallPreview, ToolFailure> {
        self.tools.get("run_command").unwrap().preview(arguments.as_object().unwrap(), &"s".into()).await
    }

    /// What ends the processes of runs and conversations.
    pub(crate) fn ends(&self) -> RunEnds {
        let no_sandbox = Err::<Sandbox, _>(Missing("not in this test".to_owned()));
        let trees = Arc::new(ProcessTrees::new(self.processes.clone(), no_sandbox.into()));
        RunEnds::new(self.processes.clone(), Arc::new(McpSessions::new(trees)), self.background.clone())
    }

    pub(crate) fn alive(&self, run: RunId) -> usize {
        self.processes.alive(run).len()
    }

    pub(crate) fn write(&self, name: &str, text: &str, mode: u32) {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(self.inside(name), text).unwrap();
        std::fs::set_permissions(self.inside(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Ports that these tools do not use.
struct Nothing;

impl Clock for Nothing {
    fn now(&self) -> UnixMillis {
        UnixMillis(0)
    }
}

#[async_trait]
impl NoteStore for Nothing {
    async fn remember(&self, _note: NewNote) -> Result<Remembered, StoreError> {
        Ok(Remembered::Stored(1))
    }

    async fn recall(&self, _owner: &MemoryOwner, _query: &str, _limit: u32) -> Result<Vec<Note>, StoreError> {
        Ok(Vec::new())
    }

    async fn said(&self, _query: SaidQuery) -> Result<Vec<Found>, StoreError> {
        Ok(Vec::new())
    }

    async fn forget_note(&self, _owner: &MemoryOwner, _id: u64, _untrusted: bool) -> Result<Forgotten, StoreError> {
        Ok(Forgotten::Missing)
    }
}

#[async_trait]
impl RunReader for Nothing {
    async fn run(&self, _id: RunId) -> Result<Option<RunRecord>, StoreError> {
        Ok(None)
    }

    async fn runs(&self, _filter: RunFilter) -> Result<Vec<RunRecord>, StoreError> {
        Ok(Vec::new())
    }

    async fn run_messages(&self, _id: RunId) -> Result<Vec<Arc<Message>>, StoreError> {
        Ok(Vec::new())
    }
}
