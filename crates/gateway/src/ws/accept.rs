//! The upgrade of a request to a socket.

use axum::RequestExt;
use axum::extract::Request;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::response::Response;

use super::{connection, refusal};
use crate::app::Shared;
use crate::error::{ApiError, ErrorCode};
use crate::new_socket::{NewSocket, SocketArrival};

/// Size of the read buffer. 16 KiB: most frames are smaller, and each connection has such a buffer.
const READ_BUFFER_BYTES: usize = 16 * 1024;

/// Answers the request for an upgrade, and hands the socket to a task of the server.
pub(super) async fn accept(app: Shared, arrival: SocketArrival, request: Request) -> Response {
    let upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection> = request.extract().await;
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => {
            let message = format!("this route takes a WebSocket upgrade: {rejection}");
            return refusal(ApiError::bad_request(ErrorCode::NoUpgrade, message));
        }
    };
    let sockets = app.sockets.clone();
    upgrade
        .max_message_size(connection::MAX_FRAME_BYTES)
        .max_frame_size(connection::MAX_FRAME_BYTES)
        .read_buffer_size(READ_BUFFER_BYTES)
        .on_upgrade(async move |socket| {
            // The library's task ends here: a task of the server serves the connection.
            if sockets.try_send(NewSocket { socket, arrival }).is_err() {
                tracing::debug!("a connection came too late, or too many came at once");
            }
        })
}
