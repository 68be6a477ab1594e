//! The RPC over WebSocket: a real client on a real socket.

mod bad_input;
pub(crate) mod client;
mod events;
mod handshake;
mod limits;
mod methods;
mod other_nodes;
mod walk_through;
