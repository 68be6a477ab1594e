//! `run_command` and `run_shell`: programs run in the workspace, inside the sandbox.
//!
//! **For**: running an argument vector (no shell reads it) or, where the operator wants that, a script; weighing what it
//! would do before a person is asked; and keeping what it prints.
//!
//! **Does not know**: how walls are built ([`sandbox`](crate::sandbox)), how processes are ended
//! ([`belay_exec`]), or whether somebody agreed.
//!
//! What a command may *do* is the sandbox's to say. What is judged here is only how far one answer of a person reaches:
//! never by reading shell text, always by the resolved program and its arguments, and with a doubt towards asking.
//!
//! Reading order: `order` (what is asked for, checked) → `program` (which file that is) → `risk` (what "always" may cover)
//! → `repository` (what a git repository brings along) → `environment` → `sealed` → `runner` → `capture` → `run_command`,
//! `run_shell`.

mod capture;
mod environment;
mod order;
mod program;
mod quote;
mod repository;
mod risk;
mod run_command;
mod run_shell;
mod runner;
mod sealed;

use std::sync::Arc;

use belay_protocol::Tool;

use self::order::Orders;
use self::run_command::RunCommand;
use self::run_shell::RunShell;
use self::runner::Runner;
use crate::config::ToolsConfig;
use crate::error::ToolsError;
use crate::outputs::KeptOutputs;
use crate::sandbox::LazySandbox;
use crate::workspace::Workspace;
use belay_exec::Processes;

/// Whether [`tools`] would refuse these settings.
///
/// # Errors
/// As of [`tools`].
pub(crate) fn check(config: &ToolsConfig, workspace: Arc<Workspace>) -> Result<(), ToolsError> {
    Orders::new(workspace, &config.commands, None).map(drop)
}

/// Builds those of the two tools that are switched on.
pub(crate) fn tools(
    config: &ToolsConfig,
    workspace: Arc<Workspace>,
    processes: Arc<Processes>,
    sandbox: LazySandbox,
    outputs: KeptOutputs,
) -> Result<Vec<Arc<dyn Tool>>, ToolsError> {
    let runner = Arc::new(Runner { processes, sandbox, outputs });
    let orders = Arc::new(Orders::new(workspace, &config.commands, runner.view())?);
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    if config.commands.enabled {
        tools.push(Arc::new(RunCommand::new(orders.clone(), runner.clone(), &config.commands)));
    }
    if config.shell.enabled {
        tools.push(Arc::new(RunShell::new(orders, runner, &config.commands)));
    }
    Ok(tools)
}
