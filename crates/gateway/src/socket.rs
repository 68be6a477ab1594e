//! The socket of a connection, its messages and its close frame: those of the library.

pub(crate) use axum::extract::ws::{CloseFrame, Message, WebSocket};
