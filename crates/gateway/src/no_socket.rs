//! A build without the feature `websocket` has no sockets: a socket has no values there, so no connection is served.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::{Sink, Stream};

/// A socket that cannot exist.
pub(crate) enum WebSocket {}

/// A message of a socket.
#[expect(dead_code, reason = "a build without sockets")]
pub(crate) enum Message {
    /// As in other builds.
    Text(String),
    /// As in other builds.
    Binary(()),
    /// As in other builds.
    Ping(()),
    /// As in other builds.
    Pong(()),
    /// As in other builds.
    Close(Option<CloseFrame>),
}

/// The reason to close a socket.
#[expect(dead_code, reason = "a build without sockets")]
pub(crate) struct CloseFrame {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
}

impl Message {
    /// A text.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

impl WebSocket {
    /// Sends a message.
    pub(crate) async fn send(&mut self, _message: Message) -> Result<(), axum::Error> {
        match *self {}
    }

    /// The next message.
    pub(crate) async fn recv(&mut self) -> Option<Result<Message, axum::Error>> {
        match *self {}
    }
}

impl Stream for WebSocket {
    type Item = Result<Message, axum::Error>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match *self {}
    }
}

impl Sink<Message> for WebSocket {
    type Error = axum::Error;

    fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        match *self {}
    }

    fn start_send(self: Pin<&mut Self>, _: Message) -> Result<(), Self::Error> {
        match *self {}
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        match *self {}
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        match *self {}
    }
}
