//! The route at which an adapter connects.

use std::sync::Arc;

use axum::Router;
use axum::extract::ws::WebSocket;
use axum::extract::{State, WebSocketUpgrade};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use belay_protocol::ChannelId;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;
use tokio::sync::mpsc;

use crate::connection::FRAME_MAX;

/// The state of the route.
pub(crate) struct Door {
    pub(crate) token: SecretString,
    /// Takes new connections.
    pub(crate) sockets: mpsc::Sender<WebSocket>,
}

/// Makes the route.
pub(crate) fn router(channel: &ChannelId, door: Door) -> Router {
    Router::new().route(&format!("/adapters/{channel}"), get(connect)).with_state(Arc::new(door))
}

/// Takes a connection of an adapter that shows the token.
async fn connect(State(door): State<Arc<Door>>, headers: HeaderMap, upgrade: WebSocketUpgrade) -> Response {
    let given = headers.get(AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
    let given = given.strip_prefix(b"Bearer ").unwrap_or_default();
    if !bool::from(given.ct_eq(door.token.expose_secret().as_bytes())) {
        return (StatusCode::UNAUTHORIZED, "wrong token: send Authorization: Bearer TOKEN\n").into_response();
    }
    let sockets = door.sockets.clone();
    let upgrade = upgrade.max_message_size(FRAME_MAX).max_frame_size(FRAME_MAX);
    upgrade.on_upgrade(|socket| async move {
        let _ = sockets.try_send(socket); // the queue is full or the daemon ends: the connection closes
    })
}
