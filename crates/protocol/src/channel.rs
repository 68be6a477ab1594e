//! The port of channels: the places that messages come from and go to.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::Stream;
use tokio_util::sync::CancellationToken;

use crate::access::ChannelAccess;
use crate::ids::{CallId, ChannelId, RunId};
use crate::inbound::Envelope;
use crate::live_plan::LivePlan;
use crate::options::QueueMode;
use crate::outbound::{DeliverError, Outbound};
use crate::quality::Quality;
use crate::repeat::{LookUp, Repeat};
use crate::route::ReplyRoute;
use crate::time::UnixMillis;

/// The messages of a channel. When the stream ends, the channel takes no more messages; it can still deliver.
pub type InboundStream = Pin<Box<dyn Stream<Item = Envelope> + Send>>;

/// A place that messages come from and go to.
#[async_trait]
pub trait Channel: Send + Sync {
    /// Its name.
    fn id(&self) -> &ChannelId;

    /// Starts to take messages. Called once. When `intake` is cancelled, the channel takes no more texts: a channel
    /// that carries control messages continues with those until the stream is dropped, any other ends the stream. The
    /// stream also ends when the platform has no more messages, such as at the end of standard input.
    ///
    /// # Errors
    /// The reason and the remedy, for the operator. The daemon refuses to start.
    async fn start(&self, intake: CancellationToken) -> Result<InboundStream, ChannelError>;

    /// Delivers one message. Called in order for each conversation, one message at a time; conversations run side by
    /// side.
    ///
    /// # Errors
    /// See [`DeliverError`]: each kind determines whether delivery is retried.
    ///
    /// # Cancel safety
    /// If the future is dropped, the message may or may not have been delivered. The caller treats it as ambiguous, see
    /// [`ChannelProfile::repeat`].
    async fn deliver(&self, message: &Outbound) -> Result<(), DeliverError>;

    /// The messages that the platform has, to settle unknown results. `None`: the platform cannot be asked.
    fn sent(&self) -> Option<&dyn SentMessages> {
        None
    }

    /// The constant properties of the channel. The default is that of a channel through which people write.
    fn profile(&self) -> ChannelProfile<'_> {
        ChannelProfile::default()
    }

    /// How it shows a run that is in progress. The answer itself comes by [`Channel::deliver`]. The default shows
    /// nothing.
    fn display(&self) -> ChannelDisplay<'_> {
        ChannelDisplay::default()
    }

    /// The admission settings of the channel. `None`: the channel cannot tell, and a principal that was admitted once
    /// stays admitted.
    fn admission(&self) -> Option<&dyn ChannelAccess> {
        None
    }

    /// The present state of the connection to the platform. It neither waits nor asks the platform.
    fn health(&self) -> ChannelHealth {
        ChannelHealth::default()
    }
}

/// The messages that a platform has. A channel hands it out by [`Channel::sent`].
#[async_trait]
pub trait SentMessages: Send + Sync {
    /// Asks the platform for the pieces of a message that it may have accepted. Called before a delivery with an
    /// unknown result is given up, also after a restart. Pieces up to `Outbound::pieces_sent` are known; the attempt
    /// that may have sent more began at `since` or later. If all pieces are there,
    /// [`Channel::deliver`] is called with their number: it sends nothing then, and succeeds.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    async fn look_up(&self, message: &Outbound, since: UnixMillis) -> LookUp;
}

/// The present state of a channel. The default: it works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelHealth {
    /// Why the channel takes no messages now, on one line for operators; `None`: nothing is known to be wrong.
    pub trouble: Option<String>,
    /// Whether a delivery can begin now. `false`: messages wait in the outbox without an attempt.
    pub can_deliver: bool,
}

impl Default for ChannelHealth {
    fn default() -> Self {
        Self { trouble: None, can_deliver: true }
    }
}

/// The constant properties of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelProfile<'a> {
    /// Whether the daemon runs for this channel. `false` for background injectors such as a watchdog or a timer: when
    /// only such channels are left, the daemon ends.
    pub keeps_alive: bool,
    /// Whether people write through it. Messages of a timer or a watchdog neither begin a conversation anew nor keep
    /// one alive.
    pub carries_people: bool,
    /// The queue mode of its messages, if neither the message nor its session nor the configuration sets one.
    pub queue_mode: QueueMode,
    /// The maximum size of a file that it delivers, in bytes; 0: it delivers no files.
    pub max_file_bytes: u64,
    /// One or two sentences for the model: how to write answers for this channel. `None`: nothing special.
    pub hints: Option<&'a str>,
    /// The effect of a repetition of a message whose result is unknown.
    pub repeat: Repeat,
    /// The promise of the channel about its deliveries.
    pub quality: Quality,
}

impl Default for ChannelProfile<'_> {
    fn default() -> Self {
        Self {
            keeps_alive: true,
            carries_people: true,
            queue_mode: QueueMode::Steer,
            max_file_bytes: 0,
            hints: None,
            repeat: Repeat::Ambiguous,
            quality: Quality::default(),
        }
    }
}

/// How a channel shows a run that is in progress. The default shows nothing.
#[derive(Clone, Copy, Default)]
pub struct ChannelDisplay<'a> {
    /// How it shows the unfinished answer.
    pub streaming: Streaming<'a>,
    /// Its sign that a run is in progress; `None`: it has none.
    pub indicator: Option<&'a dyn WorkIndicator>,
}

/// Shows that a run is in progress, such as by a typing indicator. Best effort.
#[async_trait]
pub trait WorkIndicator: Send + Sync {
    /// Shows it in a conversation until `run` is cancelled, or until it cannot be shown any more.
    ///
    /// # Cancel safety
    /// If the future is dropped, the indicator may stay until the platform removes it.
    async fn working(&self, route: &ReplyRoute, run: CancellationToken);
}

/// How a channel shows an unfinished answer.
#[derive(Clone, Copy, Default)]
pub enum Streaming<'a> {
    /// It shows nothing.
    #[default]
    Off,
    /// It shows finished parts of the answer, each as a message of its own that is delivered like every message.
    Blocks {
        /// The maximum length of a part in characters; the configuration cannot raise it.
        max_chars: usize,
    },
    /// It edits one message as the answer grows.
    Preview(&'a dyn Preview),
    /// It shows the run as it works: each piece of text, the running tools, tokens and cost.
    Live(&'a dyn LiveView),
}

/// Shows working runs piece by piece, as a terminal does. Best effort: the answer itself comes by [`Channel::deliver`].
pub trait LiveView: Send + Sync {
    /// Shows news of a run. Never waits: a slow display leaves pieces out.
    fn show(&self, run: RunId, news: LiveNews);
}

/// The news of a working run, in this order: it begins, texts and states, it ends. A run that was paused begins again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveNews {
    /// The run begins to work, or continues after a pause.
    Began,
    /// A piece of the model's text.
    Text {
        /// Step of the run, from 1. The text of a step begins anew.
        step: u32,
        /// The piece.
        text: String,
    },
    /// Some pieces were left out. The answer has the whole text.
    Lost,
    /// What the run does now.
    State(LiveState),
    /// The run has ended, or it is paused.
    Ended {
        /// Whether its answer is delivered next.
        answered: bool,
    },
}

/// The present work of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveState {
    /// The running tool calls, the oldest first. Empty: the model is asked.
    pub calls: Vec<LiveCall>,
    /// The newest calls that have ended, the newest last: at most [`LiveState::ENDED_MAX`].
    pub ended: Vec<EndedCall>,
    /// The tokens of the run and its child runs so far, read and written.
    pub tokens: u64,
    /// Their cost so far, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// How full the context of the model was at the last step; `None`: no step has ended.
    pub context: Option<ContextUse>,
    /// The plan of the run, if it carries one out.
    pub plan: Option<Arc<LivePlan>>,
}

/// How full the context of a model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextUse {
    /// The used tokens: the input of a step, and its output.
    pub used_tokens: u64,
    /// The size of the context, in tokens; 0: unknown.
    pub context_tokens: u64,
}

impl ContextUse {
    /// The used share in percent, at most 100, rounded down; `None`: the size is unknown.
    pub fn percent(self) -> Option<u64> {
        Some((self.used_tokens.saturating_mul(100)).checked_div(self.context_tokens)?.min(100))
    }
}

impl LiveState {
    /// Most ended calls that are kept. 32: more than end between two looks of a view.
    pub const ENDED_MAX: usize = 32;

    /// Adds a call that has ended.
    pub fn end_call(&mut self, call: LiveCall, took: Duration, is_success: bool) {
        let number = self.ended.last().map_or(1, |last| last.number + 1);
        if self.ended.len() == Self::ENDED_MAX {
            self.ended.remove(0);
        }
        self.ended.push(EndedCall { number, call, took, is_success });
    }
}

/// A tool call that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedCall {
    /// Its number among the ended calls of the run, from 1.
    pub number: u32,
    /// The call.
    pub call: LiveCall,
    /// How long it took.
    pub took: Duration,
    /// Whether its result is a success.
    pub is_success: bool,
}

/// A running tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveCall {
    /// The call.
    pub id: CallId,
    /// The tool.
    pub tool: String,
    /// The arguments on one line, at most 200 characters, without sensitive values.
    pub argument: String,
}

/// Shows an unfinished answer as one message that is edited. Best effort: a failure costs the preview and nothing else.
#[async_trait]
pub trait Preview: Send + Sync {
    /// Shows this text as a new message. Returns the platform's id of the message.
    ///
    /// # Errors
    /// The message was not shown, or its state is unknown.
    async fn begin(&self, route: &ReplyRoute, text: &str) -> Result<Arc<str>, DeliverError>;

    /// Replaces the text of the message.
    ///
    /// # Errors
    /// The message was not changed, or its state is unknown; [`DeliverError::Retry`] has the time to wait.
    async fn change(&self, route: &ReplyRoute, message: &str, text: &str) -> Result<(), DeliverError>;

    /// Deletes the message, since no answer takes its place.
    async fn discard(&self, route: &ReplyRoute, message: &str);

    /// The minimum time between two edits of one message that the platform accepts.
    fn pace(&self) -> Duration;

    /// The maximum length of a message in characters.
    fn max_chars(&self) -> usize;
}

/// A command that people may write, for the menu of a platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandInfo {
    /// Its name without the slash.
    pub name: &'static str,
    /// Its effect, in a few words.
    pub description: &'static str,
    /// Whether only operators may use it.
    pub operators_only: bool,
    /// Whether it belongs into the menu of a group.
    pub in_groups: bool,
}

/// A channel that cannot start.
#[derive(Debug, thiserror::Error)]
#[error("channel {channel} cannot start: {detail}")]
pub struct ChannelError {
    /// The channel.
    pub channel: ChannelId,
    /// The reason and the remedy.
    pub detail: String,
}
