//! The failures of a start, with their exit codes.

use belay_gateway::GatewayError;
use belay_program::causes::words;
use belay_program::exit::{Exit, Failure};
use belay_run::AgentError;

/// How a second daemon of one user gets a place of its own.
pub(crate) const BESIDE: &str =
    "a second daemon needs places of its own: STATE_DIRECTORY=/absolute/path, and no store.url of the first";

/// The failure of a gateway that cannot be opened.
pub fn gateway_failure(error: &GatewayError) -> Failure {
    let failure = |exit| Failure::new(exit, error);
    match error {
        GatewayError::Config(_) | GatewayError::Insecure(_) | GatewayError::Group { .. } => failure(Exit::Refused),
        GatewayError::SocketInUse(_) => {
            failure(Exit::Busy).next(format!("`belay status` asks it, `belay shutdown` ends it; {BESIDE}"))
        }
        GatewayError::Resolve { .. } | GatewayError::Listen { .. } | GatewayError::Socket { .. } => {
            failure(Exit::OutOfReach)
        }
    }
}

/// The failure of an agent that cannot be built.
pub fn agent_failure(error: &AgentError) -> Failure {
    let exit = match error {
        AgentError::Channel(_) => Exit::OutOfReach,
        AgentError::NoChannel
        | AgentError::ExecutorTool { .. }
        | AgentError::HookTools(_)
        | AgentError::Heartbeat(_)
        | AgentError::Titles(_) => Exit::Refused,
        AgentError::Store(_) => Exit::OutOfReach,
        AgentError::ChannelName(_) => Exit::Internal,
    };
    Failure::new(exit, words(error))
}
