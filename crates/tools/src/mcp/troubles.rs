//! The errors of the SDK, as errors of a server.

use std::time::Duration;

use rmcp::model::{ErrorCode, ErrorData};
use rmcp::service::ClientInitializeError;
use rmcp::transport::streamable_http_client::{AuthRequiredError, InsufficientScopeError, StreamableHttpError};

use crate::mcp::oauth::LoginTrouble;
use crate::mcp::revision;
use crate::mcp::server_error::ServerError;
use crate::mcp::untrusted::line;
use crate::mcp::wire::Watch;

/// The error of a call that needs a person at a web page first.
///
/// Source: MCP 2025-11-25, "Elicitation", "URL Elicitation Required Error".
const URL_ELICITATION: ErrorCode = ErrorCode(-32042);

/// Longest error text of a server that is shown, in bytes.
pub(super) const MAX_ERROR: usize = 2 * 1024;

/// A server that did not answer in time.
pub(super) fn silent(what: &'static str, limit: Duration, watch: &Watch) -> ServerError {
    ServerError::Silent { what, limit, noise: watch.noise() }
}

/// Converts an error of the handshake.
pub(super) fn of_handshake(error: &ClientInitializeError, watch: &Watch) -> ServerError {
    match error {
        ClientInitializeError::JsonRpcError(error) => match supported(error) {
            Some(versions) => ServerError::Version(line(&versions, 100)),
            None => one_session(&error.message).unwrap_or(ServerError::Error(line(&error.message, MAX_ERROR))),
        },
        ClientInitializeError::TransportError { error, .. } => match of_transport(&*error.error) {
            ServerError::Unreachable(words) => one_session(&words).unwrap_or(ServerError::Unreachable(words)),
            other => other,
        },
        ClientInitializeError::ConnectionClosed(_) => {
            ServerError::Unreachable(format!("the connection is closed{}", watch.noise()))
        }
        ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
            let versions: Vec<_> = server_supported.iter().map(ToString::to_string).collect();
            ServerError::Version(line(&versions.join(", "), 100))
        }
        _ => ServerError::NotMcp("its answer to the first request is none".into()),
    }
}

/// The revisions that a server names when it refuses ours.
fn supported(error: &ErrorData) -> Option<String> {
    let all = revision::supported(error)?;
    Some(all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}

/// The refusal of a server that uses one transport for all sessions, in the words of the SDKs for TypeScript and Swift; see
/// `docs/reference/mcp-servers.md`.
fn one_session(words: &str) -> Option<ServerError> {
    let all = words.to_lowercase();
    let at = ["already initialized", "already connected to a transport"].iter().find_map(|said| all.find(said))?;
    let words = all.get(at..).unwrap_or_default();
    Some(ServerError::OneSession(line(words.split(['.', '"', '<', '\n']).next().unwrap_or_default(), MAX_ERROR)))
}

/// Converts the error of a call. `refused`: what the server asked for in vain meanwhile.
pub(super) fn of_call(error: &ErrorData, refused: Option<String>) -> ServerError {
    let message = line(&error.message, MAX_ERROR);
    let asked = refused.or_else(|| (error.code == URL_ELICITATION).then(|| "a person at a web page".to_owned()));
    asked.map_or(ServerError::Error(message.clone()), |asked| ServerError::Refused { asked, message })
}

/// Whether the connection is unusable after this error: the pipe has no reader.
pub(super) fn is_over(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    !error.is::<StreamableHttpError<reqwest::Error>>()
}

/// Converts an error of the transport. The innermost cause has the useful text.
pub(super) fn of_transport(error: &(dyn std::error::Error + Send + Sync + 'static)) -> ServerError {
    let remote = error.downcast_ref::<StreamableHttpError<reqwest::Error>>();
    if matches!(remote, Some(StreamableHttpError::SessionExpired)) {
        return ServerError::SessionGone;
    }
    let mut cause: &(dyn std::error::Error + 'static) = error;
    let mut words = cause.to_string();
    loop {
        let inner = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if let Some(trouble) = inner.and_then(|inner| inner.downcast_ref::<LoginTrouble>()) {
            return ServerError::Login(trouble.clone());
        }
        if cause.is::<AuthRequiredError>() || cause.is::<InsufficientScopeError>() {
            return ServerError::Unauthorized("it wants a token, or does not take this one".into());
        }
        let Some(next) = cause.source() else { break };
        cause = next;
        let more = cause.to_string();
        if !words.contains(&more) {
            words.push_str(": ");
            words.push_str(&more);
        }
    }
    let words = without_address(&words);
    if ["HTTP 401", "HTTP 403"].iter().any(|status| words.contains(status)) {
        ServerError::Unauthorized(line(&words, MAX_ERROR))
    } else {
        ServerError::Unreachable(line(&words, MAX_ERROR))
    }
}

/// Removes the URL from an error text of the HTTP client. The URL may contain a key, and a model reads the text.
fn without_address(words: &str) -> String {
    let Some((before, rest)) = words.split_once(" for url (") else { return words.to_owned() };
    format!("{before}{}", rest.split_once(')').map_or("", |(_, after)| after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_text_omits_the_url() {
        for (words, expected) in [
            ("error sending request for url (http://h/?key=hush): refused", "error sending request: refused"),
            ("error sending request for url (http://h/", "error sending request"),
            ("HTTP 500", "HTTP 500"),
        ] {
            assert_eq!(without_address(words), expected);
        }
    }
}
