//! A build without the feature `mcp` does not offer sessions and runs by MCP.

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};

use crate::args::ServeArgs;

/// Says so.
///
/// # Errors
/// Always (78).
pub async fn serve(_args: &ServeArgs, _env: &Environment) -> Result<Exit, Failure> {
    let what = "this build of Belay does not speak the Model Context Protocol (feature mcp)";
    Err(Failure::new(Exit::Refused, what).next("install the full build; `belay --version --long` names the parts"))
}
