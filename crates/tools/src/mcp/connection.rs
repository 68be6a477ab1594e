//! One connection to one server, from opening to closing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belay_protocol::{Generation, RunId};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ErrorCode, ErrorData, JsonObject, ProtocolVersion,
    ServerResult,
};
use rmcp::service::{ClientInitializeError, RoleClient, RunningService, ServiceError};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::{AuthRequiredError, InsufficientScopeError, StreamableHttpError};
use rmcp::{ClientCacheConfig, Peer, ServiceExt};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::debug;

use crate::mcp::answer::Answer;
use crate::mcp::calls::Calls;
use crate::mcp::listener::{Listener, Notices};
use crate::mcp::listing::{self, Listed};
use crate::mcp::offer::digests;
use crate::mcp::program::{ServerProcesses, StartPrograms, Started};
use crate::mcp::server::{Endpoint, Server};
use crate::mcp::server_error::ServerError;
use crate::mcp::untrusted::line;
use crate::mcp::wire::{Watch, Watched, drain};

/// Longest time for listing all tools of a server.
pub(super) const LIST_LIMIT: Duration = Duration::from_secs(10);

/// How long a server may take to exit after its standard input is closed.
///
/// Source: MCP 2025-11-25, "Lifecycle", "Shutdown", stdio.
const EXIT_LIMIT: Duration = Duration::from_millis(500);

/// The limits of the end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct EndLimits {
    /// The longest wait for the SDK to close a connection. Over HTTP, this sends a request that ends the session.
    pub close: Duration,
    /// The part of `close` in which the server is told which calls have no reader any more. A server that does not take
    /// that still gets the end of its session.
    pub tell: Duration,
    /// How long a program is given to read that its calls are cancelled, before it is asked to end.
    pub read: Duration,
}

impl Default for EndLimits {
    fn default() -> Self {
        let (close, tell, read) = (Duration::from_secs(2), Duration::from_millis(500), Duration::from_millis(100));
        Self { close, tell, read }
    }
}

/// The error of a call that needs a person at a web page first.
///
/// Source: MCP 2025-11-25, "Elicitation", "URL Elicitation Required Error".
const URL_ELICITATION: ErrorCode = ErrorCode(-32042);

/// Longest error text of a server that is shown, in bytes.
const MAX_ERROR: usize = 2 * 1024;

/// A connection. If it is dropped, it is closed in the background.
pub(super) struct Connection {
    peer: Peer<RoleClient>,
    calls: Calls,
    /// Whether the server does not know the session any more. Calls in progress may still get their answers.
    gone: AtomicBool,
    notices: Arc<Notices>,
    watch: Arc<Watch>,
    open: Mutex<Option<Open>>,
    limits: EndLimits,
    known: Mutex<Option<Known>>,
}

/// The resources that [`close`] ends.
struct Open {
    service: RunningService<RoleClient, Listener>,
    /// The server program, if there is one, and the task that reads its standard error.
    program: Option<(Box<dyn ServerProcesses>, JoinSet<()>)>,
}

/// The tools of the last listing.
struct Known {
    /// Number of change notifications before the listing.
    as_of: u64,
    /// The digest of each tool, by name.
    digests: HashMap<String, String>,
}

impl Connection {
    /// Opens a connection for a run: starts the server or calls its URL, and performs the handshake. `watch` records
    /// what the server writes.
    ///
    /// # Cancel safety
    /// If the future is dropped, the server is ended.
    pub(super) async fn open(
        server: &Server,
        starter: &dyn StartPrograms,
        run: RunId,
        generation: &Generation,
        watch: Arc<Watch>,
        limits: EndLimits,
    ) -> Result<Self, ServerError> {
        if !generation.is_current() {
            return Err(ServerError::Stopped);
        }
        let (limit, until) = (server.start_limit(), Instant::now() + server.start_limit());
        let notices = Arc::new(Notices::default());
        let listener = Listener::new(server.name(), notices.clone());
        let open = match server.endpoint() {
            Endpoint::Program(program) => {
                let what = format!("mcp server {}", server.name());
                let started = starter.start(program, run, generation, &what);
                let started = timeout_at(until, started).await.map_err(|_| silent("its start", limit, &watch))?;
                let opened = handshake(started.map_err(ServerError::Start)?, listener, server, &watch, until).await;
                opened.map_err(|trouble| server.explain(trouble))?
            }
            Endpoint::Remote(remote) => {
                let opened = Box::pin(listener.serve(remote.transport()));
                let opened = timeout_at(until, opened).await.map_err(|_| silent("`initialize`", limit, &watch))?;
                match opened {
                    Ok(service) => Open { service, program: None },
                    Err(error) => return Err(remote.explain(of_handshake(&error, &watch)).await),
                }
            }
        };
        let connection = Self {
            peer: open.service.peer().clone(),
            calls: Calls::new(open.service.peer().clone()),
            gone: AtomicBool::new(false),
            notices,
            watch,
            open: Mutex::new(Some(open)),
            limits,
            known: Mutex::new(None),
        };
        // Disables the cache, so that every listing is current.
        connection.peer.set_response_cache_config(ClientCacheConfig::disabled()).await;
        if let Err(trouble) = connection.check_version() {
            connection.end().await;
            return Err(trouble);
        }
        Ok(connection)
    }

    fn check_version(&self) -> Result<(), ServerError> {
        let version = self.peer.peer_info().map(|info| info.protocol_version.clone()).unwrap_or_default();
        if ProtocolVersion::KNOWN_VERSIONS.contains(&version) && version.has_initialize() {
            Ok(())
        } else {
            Err(ServerError::Version(line(&version.to_string(), 40)))
        }
    }

    /// Whether the server still accepts requests.
    pub(super) fn is_open(&self) -> bool {
        !self.is_gone() && !self.peer.is_transport_closed() && self.lock_open().is_some()
    }

    /// Whether the server does not know the session of this connection any more.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// Whether the server is an address instead of a program of this machine.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.lock_open().as_ref().is_some_and(|open| open.program.is_none())
    }

    /// Lists all tools of the server, in its order. A malformed tool is listed with its problem.
    pub(super) async fn tools(&self) -> Result<Vec<Listed>, ServerError> {
        let listed = timeout(LIST_LIMIT, self.pages()).await;
        listed.unwrap_or_else(|_| Err(silent("`tools/list`", LIST_LIMIT, &self.watch)))
    }

    async fn pages(&self) -> Result<Vec<Listed>, ServerError> {
        let offers_tools = self.peer.peer_info().is_some_and(|info| info.capabilities.tools.is_some());
        if !offers_tools {
            return Ok(Vec::new());
        }
        match listing::all(&self.peer).await {
            Ok(tools) => Ok(tools),
            Err(error) => Err(self.trouble(error).await),
        }
    }

    /// The digest of the tool's current description; `None`: the server has no such tool. Lists the tools once, and
    /// again after the server reports a change.
    pub(super) async fn digest_of(&self, tool: &str) -> Result<Option<String>, ServerError> {
        let as_of = self.notices.tools_changed();
        if let Some(known) = self.known().as_ref().filter(|known| known.as_of == as_of) {
            return Ok(known.digests.get(tool).cloned());
        }
        let listed = self.tools().await?;
        let digests: HashMap<_, _> =
            listed.iter().flatten().map(|tool| (tool.name.to_string(), digests(tool).whole)).collect();
        let digest = digests.get(tool).cloned();
        *self.known() = Some(Known { as_of, digests });
        Ok(digest)
    }

    /// Calls a tool.
    ///
    /// # Cancel safety
    /// If the future is dropped, the server is notified (`notifications/cancelled`). Effects that have happened remain.
    pub(super) async fn call(&self, tool: &str, arguments: JsonObject) -> Result<Answer, ServerError> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let refused = self.notices.refused();
        match self.calls.ask(ClientRequest::CallToolRequest(CallToolRequest::new(params))).await {
            Ok(ServerResult::InputRequiredResult(_)) => Err(ServerError::Unsupported("an answer of a person")),
            Ok(ServerResult::CreateTaskResult(_)) => {
                Err(ServerError::Unsupported("time to work on it in the background"))
            }
            Ok(result) => match Answer::read(result) {
                Some(answer) => Ok(answer.after(self.notices.refused_since(refused))),
                None => Err(self.trouble(ServiceError::UnexpectedResponse).await),
            },
            Err(ServiceError::McpError(error)) => Err(of_call(&error, self.notices.refused_since(refused))),
            Err(error) => Err(self.trouble(error).await),
        }
    }

    /// Cancels the calls without an answer, and waits until the server has been told, for `limit` at most. Returns the
    /// time at which it was last told.
    pub(super) async fn cancel_calls(&self, limit: Duration) -> Option<Instant> {
        self.calls.cancel_all(limit).await
    }

    /// Closes the connection and ends the server; returns how a server program ended. Pending requests fail.
    ///
    /// # Cancel safety
    /// If the future is dropped, the server is ended in the background.
    pub(super) async fn end(&self) -> Option<String> {
        let open = self.lock_open().take()?;
        let until = Instant::now() + self.limits.close;
        self.cancel_calls(self.limits.tell).await;
        close(open, until).await
    }

    /// Converts an error of the SDK. A broken connection is closed here, so that the error can say how the server
    /// ended.
    async fn trouble(&self, error: ServiceError) -> ServerError {
        match error {
            ServiceError::McpError(error) => ServerError::Error(line(&error.message, MAX_ERROR)),
            ServiceError::TransportSend(error) => {
                let trouble = of_transport(&*error.error);
                if trouble == ServerError::SessionGone {
                    // It is closed when its last call ends: other calls may be in progress.
                    self.gone.store(true, Ordering::SeqCst);
                    return trouble;
                }
                // The connection is unusable, so the next call opens a new one.
                if is_over(&*error.error) { self.end().await.map_or(trouble, ServerError::Ended) } else { trouble }
            }
            ServiceError::UnexpectedResponse => ServerError::NotMcp("its answer does not match the request".into()),
            ServiceError::TransportClosed => {
                let how = self.end().await.unwrap_or_else(|| "the connection is closed".into());
                self.watch.ended().map_or(ServerError::Ended(how), ServerError::NotMcp)
            }
            ServiceError::Cancelled { .. } => ServerError::Stopped,
            other => ServerError::Unreachable(line(&other.to_string(), MAX_ERROR)),
        }
    }

    fn lock_open(&self) -> std::sync::MutexGuard<'_, Option<Open>> {
        // The value is only replaced as a whole, so a panic cannot leave it inconsistent.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Performs the handshake with a started program, and ends the program if the handshake fails or lasts longer than
/// `until`.
async fn handshake(
    started: Started,
    listener: Listener,
    server: &Server,
    watch: &Arc<Watch>,
    until: Instant,
) -> Result<Open, ServerError> {
    let Started { stdin, stdout, stderr, mut processes } = started;
    let mut reader = JoinSet::new();
    reader.spawn(drain(stderr, server.name().to_owned(), watch.clone()));
    let stdout = Watched::new(stdout, watch.clone());
    // The [`Watched`] reader limits the length of lines and reports the cause.
    let transport = AsyncRwTransport::new_client(stdout, stdin).with_max_line_length(usize::MAX);
    match timeout_at(until, Box::pin(listener.serve(transport))).await {
        Ok(Ok(service)) => Ok(Open { service, program: Some((processes, reader)) }),
        Ok(Err(error)) => {
            let how = processes.end(EXIT_LIMIT).await;
            finish(reader).await;
            Err(match (&error, watch.ended()) {
                (_, Some(why)) => ServerError::NotMcp(why),
                (ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. }, None) => {
                    ServerError::Ended(format!("{how}{}", watch.noise()))
                }
                _ => of_handshake(&error, watch),
            })
        }
        Err(_) => {
            processes.end(Duration::ZERO).await;
            finish(reader).await;
            Err(silent("`initialize`", server.start_limit(), watch))
        }
    }
}

/// Closes the connection, until `until` at the latest; returns how the program ended, if there was one.
async fn close(open: Open, until: Instant) -> Option<String> {
    let Open { mut service, program } = open;
    // The SDK's task has ended already, or it ends when the pipes are closed below.
    let left = until.saturating_duration_since(Instant::now());
    if !matches!(service.close_with_timeout(left).await, Ok(Some(_))) {
        debug!("an mcp connection did not close in time");
    }
    drop(service);
    let (mut processes, reader) = program?;
    let how = processes.end(EXIT_LIMIT).await;
    finish(reader).await;
    Some(how)
}

/// Waits until standard error is read to its end. The processes have ended, so the pipe is closed, unless another
/// process holds it.
async fn finish(mut reader: JoinSet<()>) {
    if timeout(EXIT_LIMIT, reader.join_next()).await.is_err() {
        reader.shutdown().await;
    }
}

fn silent(what: &'static str, limit: Duration, watch: &Watch) -> ServerError {
    ServerError::Silent { what, limit, noise: watch.noise() }
}

/// Converts an error of the handshake.
fn of_handshake(error: &ClientInitializeError, watch: &Watch) -> ServerError {
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
        _ => ServerError::NotMcp("its answer to `initialize` is none".into()),
    }
}

/// The versions that a server names when it refuses ours.
///
/// Source: MCP 2025-11-25, "Lifecycle", "Error Handling": `data.supported`.
fn supported(error: &ErrorData) -> Option<String> {
    let versions = match error.data.as_ref()?.get("supported")? {
        Value::Array(versions) => versions.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
        version => version.as_str()?.to_owned(),
    };
    Some(versions).filter(|versions| !versions.is_empty())
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
fn of_call(error: &ErrorData, refused: Option<String>) -> ServerError {
    let message = line(&error.message, MAX_ERROR);
    let asked = refused.or_else(|| (error.code == URL_ELICITATION).then(|| "a person at a web page".to_owned()));
    asked.map_or(ServerError::Error(message.clone()), |asked| ServerError::Refused { asked, message })
}

/// Whether the connection is unusable after this error: the pipe has no reader.
fn is_over(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    !error.is::<StreamableHttpError<reqwest::Error>>()
}

/// Converts an error of the transport. The innermost cause has the useful text.
fn of_transport(error: &(dyn std::error::Error + Send + Sync + 'static)) -> ServerError {
    let remote = error.downcast_ref::<StreamableHttpError<reqwest::Error>>();
    if matches!(remote, Some(StreamableHttpError::SessionExpired)) {
        return ServerError::SessionGone;
    }
    let mut cause: &(dyn std::error::Error + 'static) = error;
    let mut words = cause.to_string();
    loop {
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
