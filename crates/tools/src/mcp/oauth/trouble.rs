//! Why a request has no token.

use belay_protocol::LoginRefusal;

/// Why a request of a server with logins has no token. The text follows the name of the server: "The MCP server files …".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::mcp) enum LoginTrouble {
    /// A person has to log in.
    #[error("needs login: belay mcp login {server} ({why})")]
    Needed {
        /// The name of the server.
        server: String,
        /// The reason.
        why: String,
    },
    /// The login may be good, but it cannot be used now.
    #[error("cannot be called with its login now: {0}")]
    Unavailable(String),
}

/// A login that did not succeed because of the other side.
pub(super) fn failed(what: impl Into<String>) -> LoginRefusal {
    LoginRefusal::Failed(what.into())
}

/// A request that does not fit.
pub(super) fn refused(what: impl Into<String>) -> LoginRefusal {
    LoginRefusal::Refused(what.into())
}
