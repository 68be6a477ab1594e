//! A build without the feature `acp` does not speak the Agent Client Protocol.

use belay_cli::args::AcpArgs;
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_protocol::CommandInfo;

/// Says so.
///
/// # Errors
/// Always (78).
pub(crate) async fn serve(_args: &AcpArgs, _commands: Vec<CommandInfo>, _env: &Environment) -> Result<Exit, Failure> {
    let what = "this build of Belay does not speak the Agent Client Protocol (feature acp)";
    Err(Failure::new(Exit::Refused, what).next("install the full build; `belay --version --long` names the parts"))
}
