//! Errors of a server. Each text follows the name of the server: "The MCP server files …".

use std::time::Duration;

use crate::mcp::oauth::LoginTrouble;

/// An error of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ServerError {
    /// Its program cannot be started, or its URL cannot be used.
    #[error("cannot be started: {0}")]
    Start(String),
    /// It was started too often in one run.
    #[error(
        "has ended {0} times in this run and is not started again. Continue without it, or report that it does not \
             work"
    )]
    TooManyStarts(u32),
    /// It did not answer in time.
    #[error("did not answer {what} within {} s{noise}", limit.as_secs())]
    Silent {
        /// The request.
        what: &'static str,
        /// The time limit.
        limit: Duration,
        /// What it wrote instead; may be empty.
        noise: String,
    },
    /// It has exited, or the connection has ended.
    #[error("has ended: {0}")]
    Ended(String),
    /// It does not know the session of this connection any more, so that the request did not run. The caller begins a new
    /// session; the text is for a server that refuses that one too.
    #[error(
        "does not know the session that it has just begun. If several servers share its address, requests of one \
             session must reach the same server; a single server must keep the transport of each session"
    )]
    SessionGone,
    /// It refuses a session because it has begun one before.
    #[error(
        "takes one session in its life and has had it ({0}): it uses one transport for all sessions. It has to make one for \
             each session; until then, a restart of the server lets one client in"
    )]
    OneSession(String),
    /// Its output is not MCP.
    #[error("does not speak MCP: {0}")]
    NotMcp(String),
    /// It speaks an unsupported version of MCP.
    #[error("speaks MCP {0}, and this Belay speaks 2024-11-05 to 2026-07-28")]
    Version(String),
    /// It speaks only the transport before streamable HTTP.
    #[error(
        "speaks only the old transport of MCP 2024-11-05, HTTP+SSE, which Belay does not. Set its address for streamable \
         HTTP, which often ends in /mcp; if it has none, start a bridge for it as a program (command)"
    )]
    OldTransport,
    /// It answered with an error.
    #[error("answered with an error: {0}")]
    Error(String),
    /// It requires a token, or rejects the configured one.
    #[error("does not let us in: {0}. The operator has to set token_env or token_file of the server")]
    Unauthorized(String),
    /// A person has to log in to it, or the login cannot be used now.
    #[error(transparent)]
    Login(LoginTrouble),
    /// It cannot be reached, or the connection broke.
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    /// It asks for something that Belay does not support.
    #[error("asks for {0}, which Belay does not offer to servers")]
    Unsupported(&'static str),
    /// It asked for something in a call, Belay refused it, and the call failed.
    #[error("asked for {asked}, which Belay refuses to servers. The call then failed: {message}")]
    Refused {
        /// What it asked for.
        asked: String,
        /// Its error.
        message: String,
    },
    /// It asked for something while none of its tools was called, Belay refused it, and then it failed.
    #[error("asked for {asked}, which Belay refuses to servers. Then it {then}")]
    AskedEarly {
        /// Its request.
        asked: String,
        /// Its failure.
        then: Box<Self>,
    },
    /// It wanted to ask a person in a call, nobody was asked, and the call failed.
    #[error("wanted to ask a person something, and nobody was asked: {why}. The call then failed: {message}")]
    Unasked {
        /// Why nobody was asked.
        why: String,
        /// Its error.
        message: String,
    },
    /// Its tool asks a person in the way of the older revisions, which it does not offer in the newest one.
    #[error(
        "answered with an error: {0}. It can ask a person only in an older revision of MCP, which Belay speaks with it from now \
         on. The tool has not finished; repeat the call if its work so far does no harm twice"
    )]
    AsksInOlder(String),
    /// It wants to know more, each time that it is answered.
    #[error("has asked for more {0} times in this call, which is the limit")]
    AsksOn(usize),
    /// Nobody knows how the task of a call has ended.
    #[error(
        "does not say how the call ended, which runs as a task: {0}. Its outcome is unknown; check before you repeat it"
    )]
    LostTask(String),
    /// It has cancelled the task of a call; the text begins with a colon, or is empty.
    #[error("has cancelled the task of the call{0}")]
    TaskCancelled(String),
    /// The run was stopped.
    #[error("was not asked: the run has been stopped")]
    Stopped,
}

impl ServerError {
    /// Whether a server that does not know the first request may have caused it.
    pub(super) fn is_odd(&self) -> bool {
        match self {
            Self::Silent { .. } | Self::Ended(_) | Self::NotMcp(_) | Self::Error(_) | Self::Unreachable(_) => true,
            Self::Start(_)
            | Self::TooManyStarts(_)
            | Self::SessionGone
            | Self::OneSession(_)
            | Self::Version(_)
            | Self::OldTransport
            | Self::Unauthorized(_)
            | Self::Login(_)
            | Self::Unsupported(_)
            | Self::Refused { .. }
            | Self::AsksOn(_)
            | Self::AsksInOlder(_)
            | Self::Unasked { .. }
            | Self::LostTask(_)
            | Self::TaskCancelled(_)
            | Self::AskedEarly { .. }
            | Self::Stopped => false,
        }
    }

    /// The error of a server that asked for this while none of its tools was called. Only an error that the refusal may
    /// have caused changes.
    pub(super) fn after(self, asked: Option<String>) -> Self {
        match asked {
            Some(asked) if self.is_odd() => Self::AskedEarly { asked, then: Box::new(self) },
            _ => self,
        }
    }
}
