//! One connection to one server: opened, asked, ended.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belay_protocol::{Generation, RunId};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, JsonObject, PaginatedRequestParams, ProtocolVersion,
};
use rmcp::service::{ClientInitializeError, RoleClient, RunningService, ServiceError};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::{AuthRequiredError, InsufficientScopeError, StreamableHttpError};
use rmcp::{ClientCacheConfig, Peer, ServiceExt};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::debug;

use crate::mcp::listener::{Listener, Notices};
use crate::mcp::listing::{Listed, Page};
use crate::mcp::offer::digests;
use crate::mcp::outside::line;
use crate::mcp::program::{ServerProcesses, StartPrograms, Started};
use crate::mcp::server::{Place, Server};
use crate::mcp::trouble::Trouble;
use crate::mcp::wire::{Watch, Watched, drain};

/// Longest time from the start of a server to its first answer. 10 s: an interpreter that loads its libraries from a slow
/// disk takes three.
pub(super) const START_LIMIT: Duration = Duration::from_secs(10);

/// Longest time in which all tools of a server are listed.
pub(super) const LIST_LIMIT: Duration = Duration::from_secs(10);

/// Most tools of a server. 128: more are not chosen among, and each costs tokens in every request.
pub(super) const MAX_TOOLS: usize = 128;

/// Most pages of a list of tools.
const MAX_PAGES: usize = 32;

/// How long a server may take to end by itself once its standard input is closed, as the protocol wants it.
///
/// Source: MCP 2025-11-25, "Lifecycle", "Shutdown", stdio.
const END_PATIENCE: Duration = Duration::from_millis(500);

/// Longest wait for the SDK's own end of a connection: a request that ends the session on the server.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Longest error text of a server that is shown, in bytes.
const MAX_ERROR: usize = 2 * 1024;

/// A connection. Dropped, it is ended without waiting for it.
pub(super) struct Connection {
    peer: Peer<RoleClient>,
    notices: Arc<Notices>,
    watch: Arc<Watch>,
    open: Mutex<Option<Open>>,
    known: Mutex<Option<Known>>,
}

/// What has to be ended.
struct Open {
    service: RunningService<RoleClient, Listener>,
    /// The program, where there is one, and the reader of its standard error.
    program: Option<(Box<dyn ServerProcesses>, JoinSet<()>)>,
}

/// The tools as they were last listed.
struct Known {
    /// How often the server had said by then that they have changed.
    as_of: u64,
    /// The digest of each, by name.
    digests: HashMap<String, String>,
}

impl Connection {
    /// Opens one for a run: starts the server or calls its address, and shakes hands. What is seen on the wire is noted
    /// in `watch`.
    ///
    /// # Cancel safety
    /// Dropped, the server is ended.
    pub(super) async fn open(
        server: &Server,
        starter: &dyn StartPrograms,
        run: RunId,
        generation: &Generation,
        watch: Arc<Watch>,
    ) -> Result<Self, Trouble> {
        if !generation.is_current() {
            return Err(Trouble::Stopped);
        }
        let notices = Arc::new(Notices::default());
        let listener = Listener::new(server.name(), notices.clone());
        let open = match server.place() {
            Place::Program(program) => {
                let what = format!("mcp server {}", server.name());
                let started = starter.start(program, run, generation, &what);
                let started =
                    timeout(START_LIMIT, started).await.map_err(|_| silent("its start", START_LIMIT, &watch))?;
                let spoken = speak_to(started.map_err(Trouble::Start)?, listener, server.name(), &watch).await;
                spoken.map_err(|trouble| server.explain(trouble))?
            }
            Place::Remote(remote) => {
                let shaken = Box::pin(listener.serve(remote.transport()));
                let shaken =
                    timeout(START_LIMIT, shaken).await.map_err(|_| silent("`initialize`", START_LIMIT, &watch))?;
                Open { service: shaken.map_err(|error| of_start(&error, &watch))?, program: None }
            }
        };
        let connection = Self {
            peer: open.service.peer().clone(),
            notices,
            watch,
            open: Mutex::new(Some(open)),
            known: Mutex::new(None),
        };
        // What a server says now counts, not what it says one may still believe.
        connection.peer.set_response_cache_config(ClientCacheConfig::disabled()).await;
        if let Err(trouble) = connection.check_version() {
            connection.end().await;
            return Err(trouble);
        }
        Ok(connection)
    }

    fn check_version(&self) -> Result<(), Trouble> {
        let version = self.peer.peer_info().map(|info| info.protocol_version.clone()).unwrap_or_default();
        if ProtocolVersion::KNOWN_VERSIONS.contains(&version) && version.has_initialize() {
            Ok(())
        } else {
            Err(Trouble::Version(line(&version.to_string(), 40)))
        }
    }

    /// Whether the server can still be asked.
    pub(super) fn is_open(&self) -> bool {
        !self.peer.is_transport_closed() && self.lock_open().is_some()
    }

    /// Whether the server is no program of ours.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.lock_open().as_ref().is_some_and(|open| open.program.is_none())
    }

    /// All tools of the server, in its order; those that are malformed with what is wrong with them.
    pub(super) async fn tools(&self) -> Result<Vec<Listed>, Trouble> {
        let listed = timeout(LIST_LIMIT, self.pages()).await;
        listed.unwrap_or_else(|_| Err(silent("`tools/list`", LIST_LIMIT, &self.watch)))
    }

    async fn pages(&self) -> Result<Vec<Listed>, Trouble> {
        let offers_tools = self.peer.peer_info().is_some_and(|info| info.capabilities.tools.is_some());
        let (mut tools, mut cursor) = (Vec::new(), None);
        if !offers_tools {
            return Ok(tools);
        }
        for _ in 0..MAX_PAGES {
            let asked = cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
            let page = match Page::ask(&self.peer, asked).await {
                Ok(page) => page,
                Err(error) => return Err(self.trouble(error).await),
            };
            tools.extend(page.tools);
            if tools.len() > MAX_TOOLS {
                return Err(Trouble::Endless(format!("{MAX_TOOLS} tools")));
            }
            match page.next {
                None => return Ok(tools),
                next => cursor = next,
            }
        }
        Err(Trouble::Endless(format!("{MAX_PAGES} pages")))
    }

    /// The digest of a tool as the server describes it now; `None`: it has no such tool. The list is asked for once, and
    /// again when the server says that it has changed.
    pub(super) async fn digest_of(&self, tool: &str) -> Result<Option<String>, Trouble> {
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

    /// Has a tool called.
    ///
    /// # Cancel safety
    /// Dropped, the server is told that nobody waits any more (`notifications/cancelled`); what it has done is done.
    pub(super) async fn call(&self, tool: &str, arguments: JsonObject) -> Result<CallToolResult, Trouble> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        match self.peer.call_tool_once(params).await {
            Ok(CallToolResponse::Complete(result)) => Ok(result),
            Ok(CallToolResponse::InputRequired(_)) => Err(Trouble::Asks("an answer of a person")),
            Ok(_) => Err(Trouble::Asks("time to work on it in the background")),
            Err(error) => Err(self.trouble(error).await),
        }
    }

    /// Ends it: says goodbye, ends the server. Whatever is being asked fails.
    ///
    /// # Cancel safety
    /// Dropped, the server is ended without waiting for it.
    pub(super) async fn end(&self) -> Option<String> {
        let open = self.lock_open().take()?;
        close(open).await
    }

    /// What an error of the SDK means. A connection that broke is ended here, so that the words say how.
    async fn trouble(&self, error: ServiceError) -> Trouble {
        match error {
            ServiceError::McpError(error) => Trouble::Error(line(&error.message, MAX_ERROR)),
            ServiceError::TransportSend(error) => {
                let trouble = of_transport(&*error.error);
                // Nothing more comes of it: the next call begins a new one.
                if is_over(&*error.error) { self.end().await.map_or(trouble, Trouble::Ended) } else { trouble }
            }
            ServiceError::UnexpectedResponse => Trouble::NotMcp("its answer is not one to what it was asked".into()),
            ServiceError::TransportClosed => {
                let how = self.end().await.unwrap_or_else(|| "the connection is closed".into());
                self.watch.ended().map_or(Trouble::Ended(how), Trouble::NotMcp)
            }
            other => Trouble::Unreachable(line(&other.to_string(), MAX_ERROR)),
        }
    }

    fn lock_open(&self) -> std::sync::MutexGuard<'_, Option<Open>> {
        // Taken and put as a whole: whatever panicked has left it whole.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shakes hands with a program that was started; ends it when that fails.
async fn speak_to(started: Started, listener: Listener, name: &str, watch: &Arc<Watch>) -> Result<Open, Trouble> {
    let Started { stdin, stdout, stderr, mut processes } = started;
    let mut reader = JoinSet::new();
    reader.spawn(drain(stderr, name.to_owned(), watch.clone()));
    let stdout = Watched::new(stdout, watch.clone());
    // The reader below bounds lines itself, and says so.
    let transport = AsyncRwTransport::new_client(stdout, stdin).with_max_line_length(usize::MAX);
    match timeout(START_LIMIT, Box::pin(listener.serve(transport))).await {
        Ok(Ok(service)) => Ok(Open { service, program: Some((processes, reader)) }),
        Ok(Err(error)) => {
            let how = processes.end(END_PATIENCE).await;
            finish(reader).await;
            Err(match (&error, watch.ended()) {
                (_, Some(why)) => Trouble::NotMcp(why),
                (ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. }, None) => {
                    Trouble::Ended(format!("{how}{}", watch.noise()))
                }
                _ => of_start(&error, watch),
            })
        }
        Err(_) => {
            processes.end(Duration::ZERO).await;
            finish(reader).await;
            Err(silent("`initialize`", START_LIMIT, watch))
        }
    }
}

/// Ends what is open; how the program ended, where there was one.
async fn close(open: Open) -> Option<String> {
    let Open { mut service, program } = open;
    // Either the SDK's task has ended, or it ends with the pipes below.
    if !matches!(service.close_with_timeout(CLOSE_LIMIT).await, Ok(Some(_))) {
        debug!("an mcp connection did not close in time");
    }
    drop(service);
    let (mut processes, reader) = program?;
    let how = processes.end(END_PATIENCE).await;
    finish(reader).await;
    Some(how)
}

/// Waits until the last words are read: the processes are gone, so that the pipe has ended, unless somebody else has it.
async fn finish(mut reader: JoinSet<()>) {
    if timeout(END_PATIENCE, reader.join_next()).await.is_err() {
        reader.shutdown().await;
    }
}

fn silent(what: &'static str, limit: Duration, watch: &Watch) -> Trouble {
    Trouble::Silent { what, limit, noise: watch.noise() }
}

/// What an error of the handshake means.
fn of_start(error: &ClientInitializeError, watch: &Watch) -> Trouble {
    match error {
        ClientInitializeError::JsonRpcError(error) => Trouble::Error(line(&error.message, MAX_ERROR)),
        ClientInitializeError::TransportError { error, .. } => of_transport(&*error.error),
        ClientInitializeError::ConnectionClosed(_) => {
            Trouble::Unreachable(format!("the connection is closed{}", watch.noise()))
        }
        ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
            let versions: Vec<_> = server_supported.iter().map(ToString::to_string).collect();
            Trouble::Version(line(&versions.join(", "), 100))
        }
        _ => Trouble::NotMcp("its answer to `initialize` is none".into()),
    }
}

/// Whether no more can be sent after this error: a pipe without a reader, or a session that the server has forgotten.
fn is_over(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    let remote = error.downcast_ref::<StreamableHttpError<reqwest::Error>>();
    remote.is_none_or(|error| matches!(error, StreamableHttpError::SessionExpired))
}

/// What an error of the transport means: its last cause has the words that help.
fn of_transport(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Trouble {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    let mut words = cause.to_string();
    loop {
        if cause.is::<AuthRequiredError>() || cause.is::<InsufficientScopeError>() {
            return Trouble::NotLetIn("it wants a token, or does not take this one".into());
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
        Trouble::NotLetIn(line(&words, MAX_ERROR))
    } else {
        Trouble::Unreachable(line(&words, MAX_ERROR))
    }
}

/// The words of the HTTP client without the address, which may hold a key: a model reads them.
fn without_address(words: &str) -> String {
    let Some((before, rest)) = words.split_once(" for url (") else { return words.to_owned() };
    format!("{before}{}", rest.split_once(')').map_or("", |(_, after)| after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_not_told() {
        for (words, expected) in [
            ("error sending request for url (http://h/?key=hush): refused", "error sending request: refused"),
            ("error sending request for url (http://h/", "error sending request"),
            ("HTTP 500", "HTTP 500"),
        ] {
            assert_eq!(without_address(words), expected);
        }
    }
}
