//! Servers as small Python scripts, and what tests ask of them.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use belay_exec::{CgroupUse, Processes, ProcessesConfig};
use belay_protocol::{
    AskPerson, Clock, Form, FormAnswer, Generation, HandlePort, PersonPort, Progress, RunId, Tool, ToolContext,
    ToolFailure, ToolOutput, UnixMillis,
};
use belay_tools::mcp::{
    Mcp, McpServerConfig, McpSessions, Pins, ProcessTrees, Server, ServerInputs, Survey, SurveyMode,
};
use belay_tools::processes::{BackgroundParts, BackgroundProcesses, Limits};
use belay_tools::sandbox::{Missing, Sandbox};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// What every script begins with: a server of one page that does what its dictionary says. `on[method](message)` takes
/// the place of the usual answer.
const PRELUDE: &str = r#"
import json, os, signal, subprocess, sys, time
here = os.path.dirname(os.path.abspath(__file__))
def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
def answer(message, result):
    send({"jsonrpc": "2.0", "id": message["id"], "result": result})
def say(message, text, **more):
    answer(message, {"content": [{"type": "text", "text": text}], **more})
def tool(name, description="Says it.", properties=None, **more):
    return {"name": name, "description": description, "inputSchema": {"type": "object", "properties": properties or {}}, **more}
def note(line):
    with open(os.path.join(here, "notes"), "a") as file:
        file.write(line + "\n")
def serve(tools, call=lambda message: say(message, "ok"), on={}, version=None):
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if method in on:
            on[method](message)
        elif method == "initialize":
            answer(message, {"protocolVersion": version or message["params"]["protocolVersion"],
                             "capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "test", "version": "1"}})
        elif method == "tools/list":
            answer(message, {"tools": tools() if callable(tools) else tools})
        elif method == "tools/call":
            call(message)
        elif method == "notifications/cancelled":
            note("cancelled")
        elif method and "id" in message:
            send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
"#;

/// How long anything is waited for: the machine may be busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(1_795_000_000_000)
    }
}

/// A directory with servers and pins, and the connections of runs.
pub(crate) struct Bench {
    dir: tempfile::TempDir,
    pub(crate) sessions: Arc<McpSessions>,
    pub(crate) processes: Arc<Processes>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(|sessions| sessions)
    }

    pub(crate) fn with(change: impl FnOnce(McpSessions) -> McpSessions) -> Self {
        Self::made(tempfile::tempdir().unwrap(), Err(Missing("there is none here".into())), change)
    }

    /// One whose programs may run in this sandbox.
    pub(crate) fn walled(dir: tempfile::TempDir, sandbox: Sandbox) -> Self {
        Self::made(dir, Ok(sandbox), |sessions| sessions)
    }

    /// Without control groups, so that every other tie of a process to its run is relied on.
    fn made(
        dir: tempfile::TempDir,
        sandbox: Result<Sandbox, Missing>,
        change: impl FnOnce(McpSessions) -> McpSessions,
    ) -> Self {
        let config = ProcessesConfig { cgroup: CgroupUse::Off, ..ProcessesConfig::default() };
        let processes = Arc::new(Processes::new(config).unwrap());
        let sessions = McpSessions::new(Arc::new(ProcessTrees::new(processes.clone(), sandbox.into())));
        Self { dir, sessions: Arc::new(change(sessions)), processes }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes the script of a server, and gives its settings: no sandbox, `settings` in place of the defaults.
    pub(crate) fn script(&self, name: &str, script: &str, settings: Value) -> (String, McpServerConfig) {
        let directory = self.path(name);
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("server.py");
        std::fs::write(&file, format!("{PRELUDE}\n{script}")).unwrap();
        let mut config = json!({ "command": [python(), "-u", file], "sandbox": false });
        config.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        (name.to_owned(), serde_json::from_value(config).unwrap())
    }

    /// All of these servers together.
    pub(crate) fn mcp(&self, servers: &[(String, McpServerConfig)]) -> Mcp {
        let variable = |name: &str| -> Option<OsString> { std::env::var_os(name) };
        let server = |(name, config): &(String, McpServerConfig)| {
            let surroundings =
                ServerInputs { directory: self.dir.path(), variable: &variable, token: None, client_secret: None };
            Server::new(name, config, surroundings).unwrap()
        };
        self.of(servers.iter().map(server).collect())
    }

    pub(crate) fn of(&self, servers: Vec<Server>) -> Mcp {
        Mcp::new(servers, Pins::new(self.path("mcp-pins.json")), self.sessions.clone(), Arc::new(StoppedClock))
    }

    /// One server, asked for its tools.
    pub(crate) async fn one(&self, script: &str, settings: Value) -> Vec<Arc<dyn Tool>> {
        let mcp = self.mcp(&[self.script("s", script, settings)]);
        let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
        assert_eq!(survey.reports[0].trouble, None, "{survey:?}");
        mcp.tools(&survey)
    }

    /// What the server `s` has noted, line by line.
    pub(crate) fn notes(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("s").join("notes")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// A run and its token.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) id: RunId,
    pub(crate) cancel: CancellationToken,
    pub(crate) generation: Generation,
    pub(crate) person: PersonPort,
    pub(crate) handle: HandlePort,
    pub(crate) progress: Progress,
}

impl Run {
    pub(crate) fn new() -> Self {
        let (cancel, generation, person) = (CancellationToken::new(), Generation::default(), PersonPort::default());
        let (handle, progress) = (HandlePort::default(), Progress::default());
        Self { id: RunId::new(), cancel, generation, person, handle, progress }
    }

    /// One whose person gives these answers.
    pub(crate) fn with_person(person: &Arc<Person>) -> Self {
        Self { person: PersonPort::to(person.clone()), ..Self::new() }
    }

    pub(crate) async fn call(&self, tool: &Arc<dyn Tool>, arguments: Value) -> ToolOutput {
        let context = ToolContext {
            session: "s".into(),
            run_id: self.id,
            call_id: "c".into(),
            cancel: self.cancel.clone(),
            generation: self.generation.clone(),
            credential: None,
            progress: self.progress.clone(),
            variables: std::sync::Arc::default(),
            approved: None,
            memory: belay_protocol::MemoryOwner::Group { session: "s".into() },
            untrusted: false,
            person: self.person.clone(),
            handle: self.handle.clone(),
        };
        tool.call(arguments.as_object().unwrap(), &context).await
    }

    /// The text of an answer.
    pub(crate) async fn text(&self, tool: &Arc<dyn Tool>, arguments: Value) -> String {
        self.call(tool, arguments).await.unwrap().text
    }

    /// The text of a failure.
    pub(crate) async fn failure(&self, tool: &Arc<dyn Tool>, arguments: Value) -> String {
        match self.call(tool, arguments).await {
            Err(ToolFailure::Failed(text)) => text,
            other => panic!("expected a failure, got {other:?}"),
        }
    }
}

/// A person who has decided on the answers.
pub(crate) struct Person {
    answers: Mutex<VecDeque<FormAnswer>>,
    asked: Mutex<Vec<Form>>,
}

impl Person {
    pub(crate) fn new(answers: impl IntoIterator<Item = FormAnswer>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), asked: Mutex::default() })
    }

    /// What was asked, in order.
    pub(crate) fn asked(&self) -> Vec<Form> {
        self.asked.lock().unwrap().clone()
    }
}

#[async_trait::async_trait]
impl AskPerson for Person {
    async fn fill_in(&self, form: Form, _: u32, stop: &CancellationToken) -> FormAnswer {
        self.asked.lock().unwrap().push(form);
        let answer = self.answers.lock().unwrap().pop_front();
        match answer {
            Some(answer) => answer,
            // One who does not answer.
            None => {
                stop.cancelled().await;
                FormAnswer::Stopped
            }
        }
    }
}

/// A registry without background processes.
pub(crate) fn no_background() -> Arc<BackgroundProcesses> {
    let parts = BackgroundParts { directory: PathBuf::new(), events: None, count_end: |_| {} };
    Arc::new(BackgroundProcesses::new(parts, Limits::of(0)))
}

/// The names under which a survey's tools are offered.
pub(crate) fn offered(mcp: &Mcp, survey: &Survey) -> Vec<String> {
    mcp.tools(survey).iter().map(|tool| tool.spec().name.clone()).collect()
}

/// The interpreter itself: what `python3` names may be a script that sets variables of its own.
pub(crate) fn python() -> String {
    ask_python("sys.executable")
}

/// What an expression comes to.
pub(crate) fn ask_python(expression: &str) -> String {
    let script = format!("import sys; print({expression}, end='')");
    let asked = std::process::Command::new("python3").args(["-c", &script]).output();
    String::from_utf8(asked.unwrap().stdout).unwrap()
}

/// Whether a process is there and no zombie.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    !state.is_empty() && !state.starts_with('Z')
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
