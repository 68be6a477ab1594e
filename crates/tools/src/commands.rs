//! `run_command` and `run_shell`: run programs and scripts in the workspace, inside the sandbox.
//!
//! **For**: running an argument vector without a shell or, if the operator enables it, a script; describing what a call
//! would do before a person approves it; and storing the output.
//!
//! **Does not know**: how the sandbox is built ([`sandbox`](crate::sandbox)), how processes are ended ([`belay_exec`]),
//! or whether a person approved the call.
//!
//! The sandbox decides what a command may *do*. This module only decides how much one approval covers. It never parses
//! shell text; it uses the resolved program and its arguments, and in case of doubt a person is asked.
//!
//! Reading order: `request` (the checked request) → `program` (which file a program name refers to) → `risk` (what
//! "always" may cover) → `repository` (the settings of a git repository) → `environment` → `sealed` → `runner`
//! → `capture` → `background` → `run_command`, `run_shell`.

mod background;
mod capture;
mod environment;
mod program;
mod quote;
mod repository;
mod request;
mod risk;
mod run_command;
mod run_shell;
mod runner;
mod sealed;

use std::sync::Arc;

use belay_protocol::Tool;

use self::request::CommandRequests;
use self::run_command::RunCommand;
use self::run_shell::RunShell;
use self::runner::Runner;
use crate::config::ToolsConfig;
use crate::error::ToolsError;
use crate::outputs::KeptOutputs;
use crate::processes::BackgroundProcesses;
use crate::sandbox::LazySandbox;
use crate::workspace::Workspace;
use belay_exec::Processes;

/// Checks whether [`tools`] would accept these settings.
///
/// # Errors
/// The errors of [`tools`].
pub(crate) fn check(config: &ToolsConfig, workspace: Arc<Workspace>) -> Result<(), ToolsError> {
    CommandRequests::new(workspace, &config.commands, None).map(drop)
}

/// Builds `run_command` and `run_shell`, each only if it is enabled.
pub(crate) fn tools(
    config: &ToolsConfig,
    workspace: Arc<Workspace>,
    processes: Arc<Processes>,
    sandbox: LazySandbox,
    outputs: KeptOutputs,
    background: Arc<BackgroundProcesses>,
) -> Result<Vec<Arc<dyn Tool>>, ToolsError> {
    let runner = Arc::new(Runner { processes, sandbox, outputs, background });
    let requests = Arc::new(CommandRequests::new(workspace, &config.commands, runner.view())?);
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    if config.commands.enabled() {
        tools.push(Arc::new(RunCommand::new(requests.clone(), runner.clone(), &config.commands)));
    }
    if config.shell.enabled {
        tools.push(Arc::new(RunShell::new(requests, runner, config)));
    }
    Ok(tools)
}
