//! Finds out which revision of MCP a server speaks, over a transport of the SDK.
//!
//! The revision 2026-07-28 begins with `server/discover`, the older ones with `initialize`. A server is asked in that
//! order. Whatever else than a discovery it answers, it is asked once more, by `initialize`. The SDK has the same order,
//! with a wait of 10 s for servers that do not answer a method that they do not know, and it gives up if the answer comes
//! later.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use rmcp::model::{
    ClientConfig, ClientJsonRpcMessage, ClientNotification, ClientRequest, ClientResult, CustomResult, DiscoverRequest,
    DiscoverRequestParams, DiscoverResult, ErrorCode, ErrorData, InitializeRequest, InitializedNotification,
    JsonRpcResponse, ProtocolVersion, RequestId, RequestMetaObject, ServerJsonRpcMessage, ServerPeerInfo,
    ServerRequest, ServerResult,
};
use rmcp::service::{ClientInitializeError, RoleClient};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

/// The revision without a handshake.
pub(super) const NEW: ProtocolVersion = ProtocolVersion::V_2026_07_28;

/// The ids of the first requests. The SDK counts its own from 0 on, and sends fewer.
const DISCOVER: i64 = 1_000_000_001;
const INITIALIZE: i64 = 1_000_000_002;

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    /// With `server/discover`.
    Discover,
    /// With `initialize`.
    Initialize,
}

/// What is known of the revisions of a server. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Spoken(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// The revision of the last connection.
    last: Option<ProtocolVersion>,
    /// Whether a tool of the server works only in an older revision. A connection that fails does not change that.
    needs_older: bool,
    /// Whether the server has asked a person by a request of its own, which does not say for which call it asks.
    asks: bool,
}

impl Spoken {
    /// The revision of the last connection; `None`: there was none, or it failed.
    pub(super) fn get(&self) -> Option<ProtocolVersion> {
        self.lock().last.clone()
    }

    pub(super) fn set(&self, revision: Option<ProtocolVersion>) {
        self.lock().last = revision;
    }

    /// Makes every further connection begin with `initialize`.
    pub(super) fn need_older(&self) {
        self.lock().needs_older = true;
    }

    /// The server has asked a person by a request of its own.
    pub(super) fn has_asked(&self) {
        self.lock().asks = true;
    }

    /// Whether the server has ever asked a person by a request of its own.
    pub(super) fn asks(&self) -> bool {
        self.lock().asks
    }

    /// How the next connection begins.
    pub(super) fn first(&self) -> First {
        let known = self.lock();
        match &known.last {
            _ if known.needs_older => First::Initialize,
            Some(revision) if revision.has_initialize() => First::Initialize,
            _ => First::Discover,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Each field is only replaced as a whole, so a panic cannot leave it inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether this error says that a tool asks a person by a request of the server, which the newest revision does not have.
///
/// Source: mcp 2.3.0 for Python, run on 2026-11-30: `ctx.elicit` in a tool, -32600.
pub(super) fn needs_older(words: &str) -> bool {
    words.contains("elicitation/create") && words.contains("back-channel")
}

/// Whether Belay speaks this revision.
pub(super) fn is_known(revision: &ProtocolVersion) -> bool {
    ProtocolVersion::KNOWN_VERSIONS.contains(revision)
}

/// Opens a connection. `patience`: how long a server may leave `server/discover` without an answer before it is asked by
/// `initialize` too; `None`: for ever. Then the first of the two answers counts. `refuse` makes the error for a request
/// of the server meanwhile.
///
/// # Errors
/// Those of the SDK.
///
/// # Cancel safety
/// If the future is dropped, the transport is of no use any more.
pub(super) fn open<'a, T>(
    transport: &'a mut T,
    first: First,
    us: &'a ClientConfig,
    patience: Option<Duration>,
    refuse: Refuse<'a>,
) -> BoxFuture<'a, Result<ServerPeerInfo, ClientInitializeError>>
where
    T: Transport<RoleClient> + 'static,
{
    // Boxed here, where the compiler knows of every transport that its futures may be sent.
    Box::pin(opened(transport, first, us, patience, refuse))
}

/// Makes the error for a request of a server that comes before the connection is open.
pub(super) type Refuse<'a> = &'a (dyn Fn(&ServerRequest) -> ErrorData + Send + Sync);

async fn opened<T>(
    transport: &mut T,
    first: First,
    us: &ClientConfig,
    patience: Option<Duration>,
    refuse: Refuse<'_>,
) -> Result<ServerPeerInfo, ClientInitializeError>
where
    T: Transport<RoleClient> + 'static,
{
    let mut opening = Opening { transport, us, asked: Asked::default(), refuse };
    match first {
        First::Discover => opening.discover().await?,
        First::Initialize => opening.initialize(None).await?,
    }
    let until = patience.map(|patience| Instant::now() + patience);
    loop {
        let received = match until.filter(|_| opening.asked.initialize == Request::Unsent) {
            Some(until) => timeout_at(until, opening.transport.receive()).await.ok(),
            None => Some(opening.transport.receive().await),
        };
        let Some(message) = received else {
            opening.initialize(None).await?;
            continue;
        };
        let message = message.ok_or_else(|| ClientInitializeError::ConnectionClosed("at the first request".into()))?;
        if let Some(info) = opening.take(message).await? {
            return Ok(info);
        }
    }
}

struct Opening<'a, T> {
    transport: &'a mut T,
    us: &'a ClientConfig,
    asked: Asked,
    refuse: Refuse<'a>,
}

/// The first requests.
#[derive(Default)]
struct Asked {
    discover: Request,
    initialize: Request,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Request {
    #[default]
    Unsent,
    /// It has no answer yet.
    Open,
    Answered,
}

impl<T: Transport<RoleClient> + 'static> Opening<'_, T> {
    /// Takes a message of the server. Returns its description as soon as the connection is open.
    async fn take(&mut self, message: ServerJsonRpcMessage) -> Result<Option<ServerPeerInfo>, ClientInitializeError> {
        match message {
            ServerJsonRpcMessage::Response(JsonRpcResponse { id, result, .. }) if is(&id, INITIALIZE) => {
                let ServerResult::InitializeResult(result) = result else {
                    return Err(ClientInitializeError::ExpectedInitResult(Some(result)));
                };
                self.send(ClientJsonRpcMessage::notification(ClientNotification::InitializedNotification(
                    InitializedNotification { method: Default::default(), extensions: Default::default() },
                )))
                .await?;
                return Ok(Some(result.into()));
            }
            ServerJsonRpcMessage::Response(JsonRpcResponse { id, result, .. }) if is(&id, DISCOVER) => {
                self.asked.discover = Request::Answered;
                let discovered = discovered(result);
                match discovered.as_ref().map(|found| common(&found.supported_versions)) {
                    Some(Some(revision)) if !revision.has_initialize() => {
                        return Ok(discovered.map(|found| ServerPeerInfo::from_discover_result(revision, found)));
                    }
                    Some(common) => self.initialize_once(common).await?,
                    None => self.initialize_once(None).await?,
                }
            }
            ServerJsonRpcMessage::Error(error) => self.refused(error.id, error.error).await?,
            ServerJsonRpcMessage::Request(request) if matches!(request.request, ServerRequest::PingRequest(_)) => {
                self.send(ClientJsonRpcMessage::response(ClientResult::empty(()), request.id)).await?;
            }
            // A server that waits for its answer would never open the connection.
            ServerJsonRpcMessage::Request(request) => {
                let error = (self.refuse)(&request.request);
                self.send(ClientJsonRpcMessage::error(error, Some(request.id))).await?;
            }
            other => {
                tracing::debug!(detail = ?other, "message of an mcp server before the connection is open, ignored")
            }
        }
        Ok(None)
    }

    /// Takes an error. An error without an id is about the discovery while that has no answer.
    async fn refused(&mut self, id: Option<RequestId>, error: ErrorData) -> Result<(), ClientInitializeError> {
        let is_discovery_open = self.asked.discover == Request::Open;
        let is_of = |sent: i64, otherwise: bool| id.as_ref().map_or(otherwise, |id| is(id, sent));
        let supported = supported(&error);
        if self.asked.initialize != Request::Unsent && is_of(INITIALIZE, !is_discovery_open) {
            self.asked.initialize = Request::Answered;
            let is_new = supported.as_ref().is_some_and(|all| all.contains(&NEW));
            if is_new && self.asked.discover == Request::Unsent {
                return self.discover().await;
            }
            return Err(ClientInitializeError::JsonRpcError(error));
        }
        if !is_of(DISCOVER, is_discovery_open) {
            return Ok(());
        }
        self.asked.discover = Request::Answered;
        if self.asked.initialize == Request::Answered {
            // Both are refused.
            return Err(ClientInitializeError::JsonRpcError(error));
        }
        match supported.as_deref().map(common) {
            Some(None) if error.code == ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => {
                Err(ClientInitializeError::JsonRpcError(error))
            }
            Some(revision) => self.initialize_once(revision.filter(ProtocolVersion::has_initialize)).await,
            None => self.initialize_once(None).await,
        }
    }

    async fn discover(&mut self) -> Result<(), ClientInitializeError> {
        self.asked.discover = Request::Open;
        let (us, capabilities) = (self.us.client_info.clone(), self.us.capabilities.clone());
        let mut request = DiscoverRequest::new(DiscoverRequestParams {});
        request.extensions.insert(RequestMetaObject::with_client_context(NEW, us, capabilities));
        let request = ClientRequest::DiscoverRequest(request);
        self.send(ClientJsonRpcMessage::request(request, RequestId::Number(DISCOVER))).await
    }

    async fn initialize_once(&mut self, revision: Option<ProtocolVersion>) -> Result<(), ClientInitializeError> {
        if self.asked.initialize == Request::Unsent { self.initialize(revision).await } else { Ok(()) }
    }

    /// Asks by `initialize`, for this revision or else for the newest one that has it.
    async fn initialize(&mut self, revision: Option<ProtocolVersion>) -> Result<(), ClientInitializeError> {
        self.asked.initialize = Request::Open;
        let revision = revision.unwrap_or(ProtocolVersion::LATEST_WITH_INITIALIZE);
        let mut params = self.us.clone().with_protocol_version(revision);
        params.capabilities.extensions = None; // there are none in these revisions
        let request = ClientRequest::InitializeRequest(InitializeRequest::new(params));
        self.send(ClientJsonRpcMessage::request(request, RequestId::Number(INITIALIZE))).await
    }

    async fn send(&mut self, message: ClientJsonRpcMessage) -> Result<(), ClientInitializeError> {
        let sent = self.transport.send(message).await;
        sent.map_err(|error| ClientInitializeError::transport::<T>(error, "at the first request"))
    }
}

fn is(id: &RequestId, sent: i64) -> bool {
    match id {
        RequestId::Number(id) => *id == sent,
        RequestId::String(id) => **id == *sent.to_string(),
    }
}

/// The newest revision that both sides speak.
fn common(supported: &[ProtocolVersion]) -> Option<ProtocolVersion> {
    supported.iter().filter(|revision| is_known(revision)).max_by(|a, b| a.as_str().cmp(b.as_str())).cloned()
}

/// A discovery, also without the parts that Belay does not need.
fn discovered(result: ServerResult) -> Option<DiscoverResult> {
    match result {
        ServerResult::DiscoverResult(found) => Some(found),
        ServerResult::CustomResult(CustomResult(value)) => {
            let part = |key: &str| value.get(key).cloned().unwrap_or_default();
            let versions = serde_json::from_value(part("supportedVersions")).ok()?;
            let capabilities = serde_json::from_value(part("capabilities")).unwrap_or_default();
            Some(DiscoverResult::new(versions, capabilities))
        }
        _ => None,
    }
}

/// The revisions that a server names when it refuses ours.
///
/// Source: MCP 2025-11-25, "Lifecycle", "Error Handling"; MCP 2026-07-28: `data.supported`.
pub(super) fn supported(error: &ErrorData) -> Option<Vec<ProtocolVersion>> {
    let revision = |text: &str| serde_json::from_value(Value::from(text)).ok();
    let all: Vec<_> = match error.data.as_ref()?.get("supported")? {
        Value::Array(all) => all.iter().filter_map(Value::as_str).filter_map(revision).collect(),
        one => one.as_str().and_then(revision).into_iter().collect(),
    };
    Some(all).filter(|all| !all.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rmcp::model::{ClientCapabilities, Implementation};
    use rmcp::transport::async_rw::AsyncRwTransport;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, duplex, split};

    use super::*;

    #[test]
    fn a_failed_opening_does_not_forget_that_a_server_needs_the_older_revision() {
        let spoken = Spoken::default();
        spoken.set(Some(NEW));
        assert_eq!(spoken.first(), First::Discover);
        spoken.need_older();
        spoken.set(None);
        assert_eq!((spoken.first(), spoken.get()), (First::Initialize, None));
    }

    #[tokio::test]
    async fn an_error_without_an_id_is_about_the_discovery_while_that_is_open() {
        let (ours, theirs) = duplex(1 << 16);
        let (read, write) = split(ours);
        let mut transport = AsyncRwTransport::new_client(read, write);
        let us = ClientConfig::new(ClientCapabilities::default(), Implementation::new("x", "1"));
        let server = async {
            let (read, mut write) = split(theirs);
            let mut lines = BufReader::new(read).lines();
            for method in ["server/discover", "initialize", "notifications/initialized"] {
                let line = lines.next_line().await.unwrap().unwrap();
                assert!(line.contains(method), "{line}");
                if method == "initialize" {
                    let answers = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}
{"jsonrpc":"2.0","id":1000000002,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}
"#;
                    write.write_all(answers.as_bytes()).await.unwrap();
                }
            }
        };
        let refuse = |_: &ServerRequest| ErrorData::invalid_request("no", None);
        let opening = open(&mut transport, First::Discover, &us, Some(Duration::ZERO), &refuse);
        let (opened, ()) = tokio::join!(opening, server);
        assert_eq!(opened.unwrap().protocol_version, ProtocolVersion::LATEST_WITH_INITIALIZE);
    }
}
