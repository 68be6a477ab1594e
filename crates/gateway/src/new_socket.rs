//! WebSockets that were accepted, on their way to a task of the server.

use axum::extract::ws::WebSocket;
use belay_protocol::Principal;
use tokio::sync::OwnedSemaphorePermit;

use crate::peer::Peer;

/// Sockets that wait for their task, which is begun at once. Then: the connection is dropped.
pub(crate) const NEW_SOCKETS: usize = 256;

/// A socket whose task is to be begun.
pub(crate) struct NewSocket {
    pub(crate) socket: WebSocket,
    pub(crate) arrival: SocketArrival,
}

/// Where a connection comes from, and as whom it came in.
pub(crate) struct SocketArrival {
    pub(crate) peer: Peer,
    pub(crate) entrance: Entrance,
}

/// As whom a connection came in, and the place that it takes.
pub(crate) enum Entrance {
    /// By a token in its request, or by the control socket: it has one of the places of those who are known.
    Proven(Principal, OwnedSemaphorePermit),
    /// It has one of the few places of those who have yet to say `connect`; who it is, if its address says so.
    Waiting(Option<Principal>, #[allow(dead_code, reason = "held until connect")] OwnedSemaphorePermit),
}
