//! The tools that act outside of the conversation.
//!
//! **For**: the built-in tools of a run. Each one is a small struct that implements [`Tool`]: pure tools (`clock`,
//! `calculate`), files of the workspace, notes, commands in a sandbox, web pages, and the tools of MCP servers. Models
//! read the results, so the text of a failure names an alternative.
//!
//! **Does not know**: the caller, whether a call is allowed, and what happens to its result. The effect gate knows
//! these. Each tool declares its effect. All processes are started by [`belay_exec`], all commands run in the
//! [`sandbox`], and only [`web`] and [`mcp`] open connections.
//!
//! Reading order: [`config`] → `arguments` (how a tool is declared and called) → `clock` → `calculate` → `workspace`
//! (confines the file tools to one directory) → `files` → `notes` → `outputs` → [`sandbox`] → [`processes`] →
//! `commands` → [`web`] (blocks internal addresses) → [`mcp`] → `run_ends` → [`worker`] → [`context`] → [`attachments`] →
//! [`outgoing`].

mod arguments;
pub mod attachments;
mod calculate;
mod clock;
mod commands;
pub mod config;
pub mod context;
mod digest;
mod error;
mod files;
#[cfg_attr(not(feature = "mcp"), path = "no_mcp.rs")]
pub mod mcp;
#[cfg(test)]
mod names_tests;
mod notes;
pub mod outgoing;
mod outputs;
#[cfg_attr(not(feature = "pictures"), path = "no_picture.rs")]
mod picture;
pub mod processes;
mod run_ends;
pub mod sandbox;
#[cfg(test)]
mod testing;
pub mod web;
pub mod worker;
mod workspace;

use std::sync::Arc;

use belay_exec::Processes;
use belay_protocol::{Clock, NoteStore, RunReader, Tool};

pub use crate::config::ToolsConfig;
pub use crate::error::ToolsError;
pub use crate::notes::Meaning;
pub use crate::outputs::KeptOutputs;
use crate::processes::{BackgroundProcesses, ProcessTool};
pub use crate::run_ends::RunEnds;
use crate::sandbox::LazySandbox;
use crate::workspace::Workspace;
pub use crate::workspace::{PathResolution, Refusal, sweep};

/// The services that the built-in tools use.
pub struct ToolsParts {
    /// The store of notes.
    pub notes: Arc<dyn NoteStore>,
    /// The search for notes by meaning; `None`: by words alone.
    pub meaning: Option<Meaning>,
    /// The current time.
    pub clock: Arc<dyn Clock>,
    /// The stored long outputs. The effect gate uses a clone as its output keeper.
    pub outputs: KeptOutputs,
    /// Finds the session of a run.
    pub runs: Arc<dyn RunReader>,
    /// Starts and ends processes.
    pub processes: Arc<Processes>,
    /// The sandbox of commands. If a requirement of the sandbox is missing, commands are refused with that reason.
    pub sandbox: LazySandbox,
    /// The commands that go on in the background.
    pub background: Arc<BackgroundProcesses>,
}

/// Builds the built-in tools. A missing workspace is created with access for its owner only. The workspace is opened
/// once: the file tools keep using this directory even if another directory takes its name.
///
/// # Errors
/// [`ToolsError::NoWorkspace`] when the configuration names none, [`ToolsError::Workspace`] when it cannot be created
/// or opened; [`ToolsError::ProgramsInWorkspace`], [`ToolsError::Globs`] and [`ToolsError::Web`] for settings of
/// commands and of the web.
pub fn builtin(config: &ToolsConfig, parts: ToolsParts) -> Result<Vec<Arc<dyn Tool>>, ToolsError> {
    let ToolsParts { notes, meaning, clock, outputs, runs, processes, sandbox, background } = parts;
    let path = config.workspace.as_deref().ok_or(ToolsError::NoWorkspace)?;
    let workspace = Arc::new(Workspace::open(path)?);
    if let PathResolution::Stepwise(why) = workspace.resolution() {
        tracing::info!(%why, "paths of the workspace are resolved step by step, as safe as by openat2");
    }
    let commands = commands::tools(config, workspace.clone(), processes, sandbox, outputs.clone(), background.clone())?;
    // Shared by all tools, so that pictures are decoded one at a time.
    let pictures = picture::Pictures::new();
    let mut tools: Vec<Arc<dyn Tool>> = vec![
        Arc::new(clock::ClockTool::new(clock.clone())),
        Arc::new(calculate::Calculate::new()),
        Arc::new(files::ReadFile::new(workspace.clone(), pictures.clone(), config)),
        Arc::new(files::ListFiles::new(workspace.clone(), config)),
        Arc::new(files::SearchFiles::new(workspace.clone(), config)),
        Arc::new(files::WriteFile::new(workspace.clone(), config)),
        Arc::new(files::EditFile::new(workspace, config)),
        Arc::new(notes::Remember::new(notes.clone(), clock)),
        Arc::new(notes::Recall::new(notes.clone(), meaning)),
        Arc::new(notes::Forget::new(notes)),
        Arc::new(outputs::ReadOutput::new(outputs, runs)),
    ];
    tools.extend(commands);
    if has_background(config) {
        tools.push(Arc::new(ProcessTool::new(background)));
    }
    // A description names other tools only if they are there.
    let names = offered(config);
    let resolver = Arc::new(web::SystemResolver);
    if config.web.enabled {
        tools.push(Arc::new(web::FetchUrl::new(&config.web, resolver.clone(), pictures).map_err(ToolsError::Web)?));
    }
    if let Some(send) = web::SendRequest::new(&config.web, resolver, &names).map_err(ToolsError::Web)? {
        tools.push(Arc::new(send));
    }
    if let Some(search) = web::WebSearch::new(&config.search, &names).map_err(ToolsError::Web)? {
        tools.push(Arc::new(search));
    }
    Ok(tools)
}

/// Checks whether [`builtin`] would accept these settings, and creates nothing. If the workspace does not exist yet,
/// nothing more is checked: [`builtin`] creates it.
///
/// # Errors
/// The errors of [`builtin`].
pub fn check(config: &ToolsConfig) -> Result<(), ToolsError> {
    let path = config.workspace.as_deref().ok_or(ToolsError::NoWorkspace)?;
    match path.symlink_metadata() {
        Ok(_) => commands::check(config, Arc::new(Workspace::open(path)?)),
        Err(_) => Ok(()),
    }
}

/// The names of the tools that [`builtin`] returns with these settings.
pub fn offered(config: &ToolsConfig) -> Vec<&'static str> {
    let is_offered = |name: &&str| match *name {
        "fetch_url" => config.web.enabled,
        "process" => has_background(config),
        "run_command" => config.commands.enabled(),
        "run_shell" => config.shell.enabled,
        "send_request" => !config.web.send_methods.is_empty(),
        "web_search" => web::WebSearch::new(&config.search, &[]).is_ok_and(|search| search.is_some()),
        _ => true,
    };
    BUILTIN.into_iter().filter(is_offered).collect()
}

/// Whether commands can go on in the background.
fn has_background(config: &ToolsConfig) -> bool {
    config.commands.enabled() && config.commands.background > 0
}

/// The names of all built-in tools in alphabetical order, including the tools that the settings disable.
pub const BUILTIN: [&str; 17] = [
    "calculate",
    "clock",
    "edit_file",
    "fetch_url",
    "forget",
    "list_files",
    "process",
    "read_file",
    "read_output",
    "recall",
    "remember",
    "run_command",
    "run_shell",
    "search_files",
    "send_request",
    "web_search",
    "write_file",
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use belay_protocol::{Effect, ToolSet};
    use serde_json::{Value, json};

    use super::*;
    use crate::config::ShellConfig;
    use crate::sandbox::Missing;
    use crate::testing::{FixedClock, MemoryNotes, RunsOf};
    use belay_exec::ProcessesConfig;

    pub(super) fn parts(dir: &std::path::Path) -> ToolsParts {
        ToolsParts {
            notes: Arc::new(MemoryNotes::default()),
            meaning: None,
            clock: Arc::new(FixedClock(0)),
            outputs: KeptOutputs::open(&dir.join("outputs"), &ToolsConfig::default().outputs).unwrap(),
            runs: Arc::new(RunsOf("s".into())),
            processes: Arc::new(Processes::new(ProcessesConfig::default()).unwrap()),
            sandbox: Err(Missing("bubblewrap is not installed".to_owned())).into(),
            background: crate::testing::background(dir),
        }
    }

    fn all(dir: &std::path::Path) -> ToolSet {
        let search = config::SearchConfig { provider: config::SearchProvider::Searxng, ..Default::default() };
        let workspace = Some(dir.join("a/workspace"));
        let web = config::WebConfig { send_methods: vec!["POST".to_owned()], ..Default::default() };
        let shell = ShellConfig { enabled: true };
        let config = ToolsConfig { workspace, search, shell, web, ..ToolsConfig::default() };
        crate::testing::install_tls();
        ToolSet::new(builtin(&config, parts(dir)).unwrap())
    }

    #[test]
    fn the_names_that_are_offered_are_those_of_the_tools_that_are_built() {
        let dir = tempfile::tempdir().unwrap();
        crate::testing::install_tls();
        let search = || config::SearchConfig { provider: config::SearchProvider::Searxng, ..Default::default() };
        let mut everything =
            ToolsConfig { search: search(), shell: ShellConfig { enabled: true }, ..ToolsConfig::default() };
        everything.web.enabled = true;
        everything.web.send_methods = vec!["PUT".to_owned()];
        let mut nothing = ToolsConfig::default();
        (nothing.web.enabled, nothing.commands.allow) = (false, Vec::new());
        for config in [everything, ToolsConfig::default(), nothing] {
            let config = ToolsConfig { workspace: Some(dir.path().join("workspace")), ..config };
            let tools = builtin(&config, parts(dir.path())).unwrap();
            let mut built: Vec<_> = tools.iter().map(|tool| tool.spec().name.clone()).collect();
            built.sort_unstable();
            assert_eq!(offered(&config), built);
        }
    }

    #[test]
    fn check_refuses_what_builtin_refuses_and_creates_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let config =
            |path: &std::path::Path| ToolsConfig { workspace: Some(path.to_owned()), ..ToolsConfig::default() };
        let (file, later) = (dir.path().join("file"), dir.path().join("later"));
        std::fs::write(&file, "").unwrap();
        assert!(matches!(check(&config(&file)), Err(ToolsError::Workspace { .. })));
        assert!(matches!(check(&config("/".as_ref())), Err(ToolsError::ProgramsInWorkspace { .. })));
        assert!(check(&config(&later)).is_ok() && check(&config(dir.path())).is_ok() && !later.exists());
    }

    #[test]
    fn every_tool_declares_its_contract() {
        let dir = tempfile::tempdir().unwrap();
        let seen: Vec<_> = all(dir.path())
            .iter()
            .map(|tool| {
                let spec = tool.spec();
                let mut arguments: Vec<_> =
                    spec.schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
                arguments.sort_unstable();
                (spec.name.clone(), arguments.join(" "), spec.schema["required"].clone(), spec.effect, spec.idempotent)
            })
            .collect();
        let row = |name: &str, arguments: &str, required: Value, effect| {
            let idempotent = !["edit_file", "process", "run_command", "run_shell", "send_request"].contains(&name);
            (name.to_owned(), arguments.to_owned(), required, effect, idempotent)
        };
        assert_eq!(
            seen,
            [
                row("calculate", "expression", json!(["expression"]), Effect::None),
                row("clock", "timezone", Value::Null, Effect::None),
                row("edit_file", "all new old path", json!(["path", "old", "new"]), Effect::Write),
                row("fetch_url", "url", json!(["url"]), Effect::External),
                row("forget", "id", json!(["id"]), Effect::Write),
                row("list_files", "path", json!(["path"]), Effect::Read),
                row("process", "action end id offset pattern text timeout_s", json!(["action"]), Effect::External),
                row("read_file", "limit offset path", json!(["path"]), Effect::Read),
                row("read_output", "limit name offset", json!(["name"]), Effect::Read),
                row("recall", "conversations query", json!(["query"]), Effect::Read),
                row("remember", "key text", json!(["text"]), Effect::Write),
                row("run_command", "argv background directory keep stdin timeout_s", json!(["argv"]), Effect::External),
                row("run_shell", "directory script timeout_s", json!(["script"]), Effect::External),
                row("search_files", "context glob max path pattern", json!(["pattern"]), Effect::Read),
                row("send_request", "body headers method url", json!(["method", "url"]), Effect::External),
                row("web_search", "count query", json!(["query"]), Effect::External),
                row("write_file", "content create_dirs path", json!(["path", "content"]), Effect::Write),
            ]
        );
    }

    #[test]
    fn the_page_of_tools_says_which_of_these_ask() {
        let page = include_str!("../../../docs/reference/commands.md");
        let dir = tempfile::tempdir().unwrap();
        for tool in all(dir.path()).iter() {
            let spec = tool.spec();
            let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", spec.name))).expect("a row");
            assert_eq!(row.contains("; asks"), spec.approval != belay_protocol::Ask::Never, "{row}");
        }
    }

    #[test]
    fn the_list_of_names_has_every_tool() {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<_> = all(dir.path()).iter().map(|tool| tool.spec().name.clone()).collect();
        assert_eq!(names, BUILTIN);
    }

    /// Arguments whose names say all.
    const NAMES_ENOUGH: [&str; 10] =
        ["content", "directory", "limit", "max", "new", "path", "stdin", "text", "timeout_s", "url"];

    #[test]
    fn every_schema_is_a_closed_object() {
        let dir = tempfile::tempdir().unwrap();
        for tool in all(dir.path()).iter() {
            let spec = tool.spec();
            assert_eq!(spec.schema["type"], "object", "{}", spec.name);
            assert_eq!(spec.schema["additionalProperties"], false, "{}", spec.name);
            assert!(spec.schema.get("$schema").is_none() && spec.schema.get("title").is_none(), "{}", spec.name);
            let properties = spec.schema["properties"].as_object().unwrap();
            let is_described = |(name, part): (&String, &Value)| {
                part["description"].is_string() || NAMES_ENOUGH.contains(&name.as_str())
            };
            assert!(properties.iter().all(is_described), "{}", spec.name);
            assert!(!spec.description.is_empty());
        }
    }

    #[test]
    fn the_web_is_reached_by_the_tools_that_the_settings_name() {
        let dir = tempfile::tempdir().unwrap();
        let named = |enabled, provider| {
            let config = ToolsConfig {
                workspace: Some(dir.path().to_owned()),
                web: config::WebConfig { enabled, ..Default::default() },
                search: config::SearchConfig { provider, ..Default::default() },
                ..ToolsConfig::default()
            };
            crate::testing::install_tls();
            let tools = builtin(&config, parts(dir.path())).unwrap();
            let names = tools.iter().map(|tool| tool.spec().name.clone());
            names.filter(|name| ["fetch_url", "web_search"].contains(&name.as_str())).collect::<Vec<_>>()
        };
        use config::SearchProvider::{Brave, None, Searxng, Tavily};
        assert_eq!(named(true, None), ["fetch_url"]);
        assert_eq!(named(false, None), Vec::<String>::new());
        for provider in [Searxng, Brave, Tavily] {
            assert_eq!(named(false, provider), ["web_search"]);
        }
    }

    #[test]
    fn without_a_workspace_nothing_is_built() {
        let dir = tempfile::tempdir().unwrap();
        let built = builtin(&ToolsConfig::default(), parts(dir.path()));
        assert!(matches!(built, Err(ToolsError::NoWorkspace)));
    }

    #[test]
    fn a_workspace_that_is_a_file_is_refused_by_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let config = ToolsConfig { workspace: Some(file.path().to_owned()), ..ToolsConfig::default() };
        let dir = tempfile::tempdir().unwrap();
        let error = builtin(&config, parts(dir.path())).err().unwrap();
        assert!(error.to_string().contains(file.path().to_str().unwrap()), "{error}");
    }
}
