//! The handshake of a connection: a challenge, then `connect`, then its principal and scopes.

use std::time::Duration;

use belay_protocol::{ApprovalId, ConnectionId, Principal, plain_line};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use super::Close;
use super::connection::{MAX_FRAME_BYTES, SILENCE_LIMIT, TICK};
use super::frames::{Malformed, Request, RpcError, event, response};
use super::methods::Method;
use super::scope::Scopes;
use crate::app::Shared;
use crate::error::ApiError;
use crate::extract::parse_object;
use crate::new_socket::{SocketArrival, SocketAuth};
use crate::peer::Peer;
use crate::socket::{Message, WebSocket};
use crate::streams::EVENTS;

/// Longest time from the upgrade to `connect`. 15 s: a program has its token at hand.
const LIMIT: Duration = Duration::from_secs(15);

/// Longest frame before `connect`, in bytes. 64 KiB: many times what `connect` needs.
pub(super) const FRAME_MAX_BYTES: usize = 64 * 1024;

/// Longest client name in the log, in characters. 64: a name and a version are shorter.
const SHOWN_MAX_CHARS: usize = 64;

/// The supported protocol versions. All have the same frames: existing clients of this protocol count up to 4.
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=4;

/// An authenticated connection.
pub(super) struct Session {
    pub(super) id: ConnectionId,
    pub(super) principal: Principal,
    pub(super) scopes: Scopes,
    /// Held while the connection is open.
    pub(super) permit: OwnedSemaphorePermit,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ConnectParams"))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Connect {
    min_protocol: u32,
    max_protocol: u32,
    client: ClientInfo,
    role: Option<String>,
    scopes: Option<Vec<String>>,
    auth: Option<Credentials>,
    /// The client's capabilities. Unused.
    #[serde(rename = "caps")]
    #[cfg_attr(test, schemars(with = "Option<Vec<Value>>"))]
    _caps: Option<Vec<IgnoredAny>>,
    #[serde(rename = "locale")]
    _locale: Option<String>,
    #[serde(rename = "userAgent")]
    _user_agent: Option<String>,
}

/// The client's description of itself. Only logged; nothing depends on it.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClientInfo {
    id: String,
    version: String,
    #[serde(rename = "platform")]
    _platform: Option<String>,
    #[serde(rename = "mode")]
    _mode: Option<String>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Credentials {
    token: Option<String>,
}

/// Sends the challenge and waits for `connect`. An `Err` is the way in which the connection ends; the client has
/// received the reason.
pub(super) async fn handshake(
    app: &Shared,
    socket: &mut WebSocket,
    arrival: SocketArrival,
) -> Result<Session, Option<Close>> {
    let deadline = Instant::now() + LIMIT;
    let greeting = json!({ "nonce": ApprovalId::new(), "ts": app.clock.now().0 });
    let greet = socket.send(Message::text(event("connect.challenge", &greeting)));
    match timeout_at(deadline, greet).await {
        Ok(Ok(())) => {}
        Ok(Err(_)) | Err(_) => return Err(None),
    }
    let text = tokio::select! {
        frame = timeout_at(deadline, first_frame(socket)) => frame.unwrap_or(Err(Some(Close::policy("no connect within 15 s"))))?,
        () = app.draining.cancelled() => return Err(Some(Close::restart())),
    };
    let request = match Request::read(&text) {
        Ok(request) => request,
        Err(Malformed::Close(why)) => return Err(Some(Close::policy(why))),
        Err(Malformed::Answer(id, why)) => {
            return Err(refuse(socket, deadline, &id, RpcError::invalid(why)).await);
        }
    };
    match connect(app, &request, arrival).await {
        Ok((session, hello)) => {
            let sent = timeout_at(deadline, socket.send(Message::text(response(&request.id, &Ok(hello))))).await;
            if matches!(sent, Ok(Ok(()))) { Ok(session) } else { Err(None) }
        }
        Err(error) => Err(refuse(socket, deadline, &request.id, error).await),
    }
}

async fn refuse(socket: &mut WebSocket, deadline: Instant, id: &str, error: RpcError) -> Option<Close> {
    let close = if error.is_unauthorized() { "unauthorized" } else { "connect was refused" };
    let said = timeout_at(deadline, socket.send(Message::text(response(id, &Err(error))))).await;
    matches!(said, Ok(Ok(()))).then(|| Close::policy(close))
}

/// Returns the first text frame; skips pings and pongs.
async fn first_frame(socket: &mut WebSocket) -> Result<String, Option<Close>> {
    loop {
        return match socket.recv().await {
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
            Some(Ok(Message::Text(text))) if text.len() > FRAME_MAX_BYTES => Err(Some(Close::too_big())),
            Some(Ok(Message::Text(text))) => Ok(text.as_str().to_owned()),
            Some(Ok(Message::Binary(_))) => Err(Some(Close::binary())),
            Some(Err(error)) => Err(Close::of_error(&error)),
            Some(Ok(Message::Close(_))) | None => Err(None),
        };
    }
}

/// Authenticates the connection, and makes the answer to `connect`.
async fn connect(app: &Shared, request: &Request, arrival: SocketArrival) -> Result<(Session, Value), RpcError> {
    if request.method != "connect" {
        return Err(RpcError::invalid(format!("the first request is connect, not {:?}", request.method)));
    }
    let params: Connect = parse_object(request.params().as_bytes())?;
    let version = (*VERSIONS.end()).min(params.max_protocol);
    if version < params.min_protocol.max(*VERSIONS.start()) {
        let (first, last) = (VERSIONS.start(), VERSIONS.end());
        return Err(RpcError::invalid(format!("protocol versions {first} to {last} are supported")));
    }
    let role = params.role.as_deref().unwrap_or("operator");
    if role != "operator" {
        return Err(RpcError::invalid(format!("role: only \"operator\" is served, not {role:?}")));
    }
    let SocketArrival { peer, auth } = arrival;
    let (known, permit) = match auth {
        SocketAuth::Authenticated(principal, permit) => (Some(principal), Some(permit)),
        SocketAuth::Unauthenticated(principal, _permit) => (principal, None),
    };
    let token = params.auth.and_then(|auth| auth.token);
    let principal = admitted(app, peer, known, token).await?;
    if !*app.ready.borrow() {
        return Err(ApiError::no_answer("Belay does not accept messages at the moment; connect again shortly").into());
    }
    let permit = match permit {
        Some(permit) => permit,
        None => app.stream_permit()?,
    };
    let scopes = Scopes::of(&principal, params.scopes.as_deref());
    let id = ConnectionId::new();
    tracing::info!(
        connection = %id, principal = %principal.id, client = %plain_line(&params.client.id, SHOWN_MAX_CHARS),
        version = %plain_line(&params.client.version, SHOWN_MAX_CHARS), "connected"
    );
    let hello = json!({
        "type": "hello-ok",
        "protocol": version,
        "server": { "version": app.version, "connId": id },
        "features": { "methods": Method::names(), "events": EVENTS },
        "auth": { "role": role, "scopes": scopes.words() },
        "policy": {
            "maxPayload": MAX_FRAME_BYTES,
            "maxBufferedBytes": app.config.max_buffered_bytes,
            "tickIntervalMs": TICK.as_millis() as u64,
            "silenceLimitMs": SILENCE_LIMIT.as_millis() as u64,
        },
    });
    Ok((Session { id, principal, scopes, permit }, hello))
}

/// Returns the principal, from the request and from the token in `connect`. If both name one, they must be the same.
async fn admitted(
    app: &Shared,
    peer: Peer,
    known: Option<Principal>,
    token: Option<String>,
) -> Result<Principal, ApiError> {
    let shown = match token {
        Some(token) => match app.auth.by_shown(peer, &token) {
            Ok(shown) => shown,
            Err(error) => return Err(app.wrong_tokens.refuse(Some(peer), error).await),
        },
        None => None,
    };
    match (known, shown) {
        (Some(known), Some(shown)) if known != shown => {
            Err(ApiError::forbidden("the token in connect and the one of the request are not the same"))
        }
        (Some(known), _) => Ok(known),
        (None, Some(shown)) => Ok(shown),
        (None, None) => Err(ApiError::unauthorized(
            "a token is needed: as auth.token in connect, or as the header \"Authorization: Bearer <token>\"",
        )),
    }
}
