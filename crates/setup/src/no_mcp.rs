//! A build without the feature `mcp` uses no MCP servers.

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::Output;

use crate::mcp_args::{ApproveArgs, ListArgs};

/// Says so.
///
/// # Errors
/// Always (78).
pub async fn list(_args: &ListArgs, _env: &Environment, _out: Output<'_>) -> Result<Exit, Failure> {
    Err(absent())
}

/// Says so.
///
/// # Errors
/// Always (78).
pub async fn approve(_args: &ApproveArgs, _env: &Environment, _out: Output<'_>) -> Result<Exit, Failure> {
    Err(absent())
}

fn absent() -> Failure {
    let what = "this build of Belay uses no MCP servers (feature mcp)";
    Failure::new(Exit::Refused, what).next("install the full build; `belay --version --long` names the parts")
}
