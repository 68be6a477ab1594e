//! A build without the feature `websocket` accepts no upgrade.

use axum::extract::Request;
use axum::response::Response;

use super::refusal;
use crate::app::Shared;
use crate::error::ApiError;
use crate::new_socket::SocketArrival;

/// Refuses each connection.
pub(super) async fn accept(_app: Shared, _arrival: SocketArrival, _request: Request) -> Response {
    refusal(ApiError::not_found(
        "this build of Belay has no RPC over WebSocket (feature websocket); `belay --version --long` lists the parts of a build",
    ))
}
