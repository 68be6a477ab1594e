//! What can go wrong with a server, in words that end a sentence which names it: "The MCP server files …".

use std::time::Duration;

/// Something went wrong with a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Trouble {
    /// It could not be started, or its address not be used.
    #[error("cannot be started: {0}")]
    Start(String),
    /// It was started too often in one run.
    #[error(
        "has ended {0} times in this run and is not started again. Continue without it, or report that it does not \
             work"
    )]
    EndsAgainAndAgain(u32),
    /// It said nothing in time.
    #[error("did not answer {what} within {} s{noise}", limit.as_secs())]
    Silent {
        /// What it was asked.
        what: &'static str,
        /// How long it was given.
        limit: Duration,
        /// What it wrote instead, or nothing.
        noise: String,
    },
    /// It is gone.
    #[error("has ended: {0}")]
    Ended(String),
    /// It writes what is no MCP.
    #[error("does not speak MCP: {0}")]
    NotMcp(String),
    /// It speaks a version of MCP that we do not.
    #[error("speaks MCP {0}, and this Belay speaks 2024-11-05 to 2025-11-25")]
    Version(String),
    /// It answered with an error.
    #[error("answered with an error: {0}")]
    Error(String),
    /// It does not take the token, or wants one.
    #[error("does not let us in: {0}. The operator has to set token_env or token_file of the server")]
    NotLetIn(String),
    /// It cannot be reached, or the connection broke.
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    /// It asks for what we do not do.
    #[error("asks for {0}, which Belay does not offer to servers")]
    Asks(&'static str),
    /// It offers too much.
    #[error("lists its tools without an end: more than {0}")]
    Endless(String),
    /// The run was stopped.
    #[error("was not asked: the run has been stopped")]
    Stopped,
}
