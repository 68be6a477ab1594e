//! `GET /ws`: the RPC over WebSocket. `docs/reference/websocket.md` describes requests, responses and events.
//!
//! A connection is a task of the server. It owns everything that it waits for and follows, and ends all of it when it
//! ends. Outgoing frames wait in a bounded queue that never blocks the sender. So a client that stops reading loses its
//! connection and delays nobody.
//!
//! Reading order: `accept` → [`frames`] → [`scope`] → [`handshake`] → [`outgoing`] → [`connection`] → [`followed`] →
//! [`follow`] → [`claims`] → [`methods`].

#[cfg_attr(not(feature = "websocket"), path = "no_accept.rs")]
mod accept;
mod claims;
mod connection;
mod follow;
mod followed;
mod frames;
mod handshake;
mod methods;
mod outgoing;
#[cfg(test)]
mod schema;
mod scope;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::header::CONNECTION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use self::accept::accept;
use crate::app::{App, Shared};
use crate::auth::shows_token;
use crate::error::ApiError;
use crate::new_socket::{NewSocket, SocketArrival, SocketAuth};
use crate::peer::Peer;
use crate::socket::CloseFrame;

/// Serves a connection to its end.
pub(crate) async fn serve(socket: NewSocket, app: Shared) {
    let NewSocket { socket, arrival } = socket;
    connection::serve(app, socket, arrival).await;
}

/// The close frame of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Close {
    code: u16,
    reason: &'static str,
}

// Source of the codes: RFC 6455, section 7.4.1, and the registry of IANA for 1012 and 1013.
impl Close {
    /// The client violates a rule of the protocol.
    fn policy(reason: &'static str) -> Self {
        Self { code: 1008, reason }
    }

    fn protocol(reason: &'static str) -> Self {
        Self { code: 1002, reason }
    }

    fn binary() -> Self {
        Self { code: 1003, reason: "frames are text" }
    }

    fn too_big() -> Self {
        Self { code: 1009, reason: "the frame is too long" }
    }

    fn broken() -> Self {
        Self { code: 1011, reason: "the facts cannot be read; connect again, and subscribe from the last cursor" }
    }

    fn restart() -> Self {
        Self { code: 1012, reason: "Belay is shutting down" }
    }

    /// The close frame after a read error; `None`: nothing can be sent any more.
    fn of_error(error: &axum::Error) -> Option<Self> {
        // The library's own error is behind two wrappers. Its text is all that is available without a dependency on its
        // crate.
        let words = error.to_string();
        if words.contains("too long") || words.contains("too big") {
            Some(Self::too_big())
        } else if words.contains("UTF-8") || words.contains("utf-8") {
            Some(Self { code: 1007, reason: "a text is UTF-8" })
        } else {
            None
        }
    }

    fn frame(&self) -> CloseFrame {
        CloseFrame { code: self.code, reason: self.reason.into() }
    }
}

/// Accepts a connection, or refuses it before it uses resources.
pub(crate) async fn upgrade(
    State(app): State<Shared>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    // A request without a peer did not come through our server; nothing is trusted.
    let peer = peer.map_or(Peer::Socket { trusted: false }, |Extension(peer)| peer);
    match admit(&app, peer, &headers).await {
        Ok(auth) => accept(app, SocketArrival { peer, auth }, request).await,
        Err(error) => refusal(error),
    }
}

/// The principal, as far as the request identifies it, and a permit for the connection.
async fn admit(app: &App, peer: Peer, headers: &HeaderMap) -> Result<SocketAuth, ApiError> {
    let principal = match app.auth.admit_socket(peer, headers) {
        Err(error) if error.status == StatusCode::UNAUTHORIZED && shows_token(headers) => {
            return Err(app.wrong_tokens.refuse(Some(peer), error).await);
        }
        principal => principal?,
    };
    match principal {
        Some(principal) if app.auth.is_proof(peer, headers) => {
            Ok(SocketAuth::Authenticated(principal, app.stream_permit()?))
        }
        principal => {
            let permit = app.failed_auth.clone().try_acquire_owned();
            let permit = permit.map_err(|_full| ApiError::busy("too many connections have yet to say connect"))?;
            Ok(SocketAuth::Unauthenticated(principal, permit))
        }
    }
}

/// A refusal that also closes the connection, so that many refused clients do not hold connections that others need.
fn refusal(error: ApiError) -> Response {
    tracing::debug!(status = error.status.as_u16(), "connection refused");
    let mut response = error.into_response();
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
