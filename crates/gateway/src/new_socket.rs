//! Accepted WebSockets that wait for a task of the server.

use belay_protocol::Principal;
use tokio::sync::OwnedSemaphorePermit;

use crate::peer::Peer;
use crate::socket::WebSocket;

/// Capacity of the queue of sockets that wait for their task, which starts at once. When it is full, the connection is
/// dropped.
pub(crate) const NEW_SOCKETS: usize = 256;

/// A socket whose task is to be started.
pub(crate) struct NewSocket {
    pub(crate) socket: WebSocket,
    pub(crate) arrival: SocketArrival,
}

/// The peer of a connection, and its authentication.
pub(crate) struct SocketArrival {
    pub(crate) peer: Peer,
    pub(crate) auth: SocketAuth,
}

/// The authentication of a connection, and its permit.
pub(crate) enum SocketAuth {
    /// Authenticated by a token in its request or by the control socket. Holds a permit of the authenticated
    /// connections.
    Authenticated(Principal, OwnedSemaphorePermit),
    /// Has not sent `connect` yet. Holds one of the few permits for unauthenticated connections. The principal is known
    /// if the address is enough to determine it.
    Unauthenticated(Option<Principal>, #[allow(dead_code, reason = "held until connect")] OwnedSemaphorePermit),
}
