//! The port of message platforms.

use std::pin::Pin;

use async_trait::async_trait;
use futures_util::Stream;
use tokio_util::sync::CancellationToken;

use crate::ids::ChannelId;
use crate::inbound::{Envelope, ReplyRoute};
use crate::outbound::{DeliverError, Outbound};

/// Messages as they come in. Its end is the end of the channel's intake; the channel can still deliver.
pub type InboundStream = Pin<Box<dyn Stream<Item = Envelope> + Send>>;

/// A place messages come from and go to.
#[async_trait]
pub trait Channel: Send + Sync {
    /// Its name.
    fn id(&self) -> &ChannelId;

    /// Begins to take messages. Called once. When `intake` is cancelled no more texts are taken; a channel that carries
    /// control goes on with that until the stream is dropped, any other ends. It also ends when the platform has no more
    /// to say (end of input).
    ///
    /// # Errors
    /// Plain words that say what is wrong and what to do; the daemon refuses to start.
    async fn start(&self, intake: CancellationToken) -> Result<InboundStream, ChannelError>;

    /// Shows one message. Called in order for each conversation, one at a time; conversations run side by side.
    ///
    /// # Errors
    /// See [`DeliverError`]: each kind says whether to try again.
    ///
    /// # Cancel safety
    /// Dropped midway the message may or may not have been shown; the caller treats it as ambiguous.
    async fn deliver(&self, message: &Outbound) -> Result<(), DeliverError>;

    /// Whether the daemon lives for this channel. A background injector (a watchdog, a timer) answers `false`: when only
    /// such channels are left, the daemon ends.
    fn keeps_alive(&self) -> bool {
        true
    }

    /// Shows that work goes on (a typing indicator) until `run` is cancelled. Best effort; the default shows nothing.
    async fn working(&self, _route: &ReplyRoute, _run: CancellationToken) {}
}

/// A channel that cannot start.
#[derive(Debug, thiserror::Error)]
#[error("channel {channel} cannot start: {detail}")]
pub struct ChannelError {
    /// Which.
    pub channel: ChannelId,
    /// What is wrong and what to do.
    pub detail: String,
}
