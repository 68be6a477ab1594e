//! The port of message platforms.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::Stream;
use tokio_util::sync::CancellationToken;

use crate::access::ChannelAccess;
use crate::ids::ChannelId;
use crate::inbound::Envelope;
use crate::options::QueueMode;
use crate::outbound::{DeliverError, Outbound};
use crate::route::ReplyRoute;

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

    /// Whether people speak through it. What a timer or a watchdog sends neither begins a conversation anew nor keeps one
    /// alive.
    fn carries_people(&self) -> bool {
        true
    }

    /// What a turn may show of its answer while it comes; the answer itself comes by [`Channel::deliver`].
    fn streaming(&self) -> Streaming<'_> {
        Streaming::Off
    }

    /// What becomes of messages that meet a busy session, where neither message nor session nor configuration says.
    fn queue_mode(&self) -> QueueMode {
        QueueMode::Steer
    }

    /// How answers should be written for this place, for the model: a sentence or two. `None`: nothing special.
    fn hints(&self) -> Option<&str> {
        None
    }

    /// Who is let in, by the settings that messages are let in by. `None`: it cannot say, and whoever was let in once still is.
    fn admission(&self) -> Option<&dyn ChannelAccess> {
        None
    }

    /// Shows that work goes on (a typing indicator) until `run` is cancelled. Best effort; the default shows nothing.
    async fn working(&self, _route: &ReplyRoute, _run: CancellationToken) {}
}

/// What a channel shows of an answer while it comes.
#[derive(Clone, Copy)]
pub enum Streaming<'a> {
    /// Nothing.
    Off,
    /// Finished pieces, each a message of its own, delivered like every message.
    Blocks {
        /// Longest piece in characters, whatever the configuration says.
        max_chars: usize,
    },
    /// One message that is changed as the answer grows.
    Preview(&'a dyn Preview),
}

/// Shows an answer while it comes, as a message that is changed. Best effort: what goes wrong costs the preview and nothing
/// else.
#[async_trait]
pub trait Preview: Send + Sync {
    /// Shows this text as a new message; returns the platform's name for it.
    ///
    /// # Errors
    /// It was not shown, or nobody knows.
    async fn begin(&self, route: &ReplyRoute, text: &str) -> Result<Arc<str>, DeliverError>;

    /// Shows this text in the place of what the message says.
    ///
    /// # Errors
    /// It was not changed, or nobody knows; [`DeliverError::Retry`] says how long to wait.
    async fn change(&self, route: &ReplyRoute, message: &str, text: &str) -> Result<(), DeliverError>;

    /// Takes the message away: there is no answer to take its place.
    async fn discard(&self, route: &ReplyRoute, message: &str);

    /// Shortest time between two changes of one message that the platform bears.
    fn pace(&self) -> Duration;

    /// Most characters that a message can show.
    fn max_chars(&self) -> usize;
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
