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

    /// The constant properties of the channel. The default is that of a channel through which people write.
    fn profile(&self) -> ChannelProfile<'_> {
        ChannelProfile::default()
    }

    /// What a turn may show of its answer while it comes; the answer itself comes by [`Channel::deliver`].
    fn streaming(&self) -> Streaming<'_> {
        Streaming::Off
    }

    /// Who is let in, by the settings that messages are let in by. `None`: it cannot say, and whoever was let in once still is.
    fn admission(&self) -> Option<&dyn ChannelAccess> {
        None
    }

    /// Shows that work goes on (a typing indicator) until `run` is cancelled. Best effort; the default shows nothing.
    async fn working(&self, _route: &ReplyRoute, _run: CancellationToken) {}
}

/// The constant properties of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelProfile<'a> {
    /// Whether the daemon runs for this channel. `false` for background injectors such as a watchdog or a timer: when only such
    /// channels are left, the daemon ends.
    pub keeps_alive: bool,
    /// Whether people write through it. Messages of a timer or a watchdog neither begin a conversation anew nor keep one alive.
    pub carries_people: bool,
    /// The queue mode of its messages, if neither the message nor its session nor the configuration sets one.
    pub queue_mode: QueueMode,
    /// One or two sentences for the model: how to write answers for this channel. `None`: nothing special.
    pub hints: Option<&'a str>,
}

impl Default for ChannelProfile<'_> {
    fn default() -> Self {
        Self { keeps_alive: true, carries_people: true, queue_mode: QueueMode::Steer, hints: None }
    }
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
