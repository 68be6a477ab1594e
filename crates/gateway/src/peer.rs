//! The peer of a connection.

use std::net::IpAddr;

/// The peer of a connection. Every request carries one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Over TCP, from this address.
    Tcp(IpAddr),
    /// Over the control socket.
    Socket {
        /// Whether the user is the daemon's own or root, or the socket is open to a group.
        trusted: bool,
    },
}
