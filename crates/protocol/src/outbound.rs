//! Outbound messages and the errors of their delivery.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::ids::{ChannelId, OutboxId, RunId, SessionKey};
use crate::question::Question;
use crate::repeat::OutboxKey;
use crate::route::ReplyRoute;
use crate::sent_file::OutboundFile;

/// The kind of a text for people, as hooks at [`HookPoint::MessageSending`](crate::HookPoint::MessageSending) read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    /// The reply of a run.
    Reply,
    /// A message that a run sends while it continues.
    Message,
    /// The question about a tool call.
    Question,
    /// The reminder of such a question.
    Reminder,
    /// The answer to a command or to an answer of a person, or a refusal.
    Command,
    /// Another text of Belay's own, such as the result of a job.
    Notice,
}

impl TextKind {
    const ALL: [Self; 6] = [Self::Reply, Self::Message, Self::Question, Self::Reminder, Self::Command, Self::Notice];

    /// The name in the store and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Reply => "reply",
            Self::Message => "message",
            Self::Question => "question",
            Self::Reminder => "reminder",
            Self::Command => "command",
            Self::Notice => "notice",
        }
    }

    /// The kind with this name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// One outbound message in Belay's own form: a Markdown text and its destination.
#[derive(Clone, Debug, PartialEq)]
pub struct Outbound {
    /// The id of the delivery; the same over all its attempts.
    pub id: OutboxId,
    /// The run that it belongs to; `None`: it is the reply to a command.
    pub run_id: Option<RunId>,
    /// The destination.
    pub route: ReplyRoute,
    /// The text, in Markdown.
    pub text: String,
    /// The parts that the platform has already accepted of a long message whose delivery was interrupted.
    pub pieces_sent: u32,
    /// The approval request that it shows, if any.
    pub question: Option<Question>,
    /// The preview on the platform that it replaces, if any.
    pub preview: Option<Arc<str>>,
    /// The address to which it is posted, see [`CallbackClient`](crate::callback::CallbackClient). The text is a JSON
    /// object then. `None`: it is a text for people.
    pub callback: Option<Arc<str>>,
    /// The kind of a text that hooks have not checked yet; `None`: they have, or it is for no person. Delivery lets them
    /// check it.
    pub unchecked: Option<TextKind>,
    /// The file that it carries. The text is its caption then, and may be empty.
    pub file: Option<OutboundFile>,
}

impl Outbound {
    /// A notice with an id of its own, without an approval request and without a preview, of which nothing is
    /// delivered yet. `run_id`: the run that it answers, if any.
    pub fn new(run_id: Option<RunId>, route: ReplyRoute, text: impl Into<String>) -> Self {
        let (id, text, unchecked) = (OutboxId::new(), text.into(), Some(TextKind::Notice));
        let (question, preview, callback, file) = (None, None, None, None);
        Self { id, run_id, route, text, pieces_sent: 0, question, preview, callback, unchecked, file }
    }

    /// The key by which a platform recognises a repetition.
    pub fn key(&self) -> OutboxKey {
        OutboxKey::of(self.id)
    }

    /// The same message, with a text that hooks have checked.
    #[must_use]
    pub fn checked(self) -> Self {
        Self { unchecked: None, ..self }
    }

    /// The same message as a text of another kind.
    #[must_use]
    pub fn of_kind(self, kind: TextKind) -> Self {
        Self { unchecked: Some(kind), ..self }
    }
}

/// Lets hooks check the texts that a channel sends by itself, without the outbox.
#[async_trait]
pub trait TextChecker: Send + Sync {
    /// The agreed text, or a line that says that the text was withheld. Takes 2 seconds at most.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    async fn checked(&self, channel: &ChannelId, text: String) -> String;
}

/// Checks nothing.
#[derive(Debug, Default)]
pub struct UncheckedTexts;

#[async_trait]
impl TextChecker for UncheckedTexts {
    async fn checked(&self, _channel: &ChannelId, text: String) -> String {
        text
    }
}

/// A failed delivery.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DeliverError {
    /// Nothing was delivered. The delivery is retried, after the delay if there is one.
    #[error("not delivered, try again{}: {detail}", after.map(|d| format!(" after {} ms", d.as_millis())).unwrap_or_default())]
    Retry {
        /// The delay that the platform asks for (429).
        after: Option<Duration>,
        /// The reason, for the log.
        detail: String,
        /// The parts that the platform has accepted so far, including those of earlier attempts.
        pieces_sent: u32,
    },
    /// The request was sent and no answer came: the message may or may not have been delivered. It is retried only if
    /// the channel's [`Repeat`](crate::Repeat) is harmless, or if the platform says by
    /// [`SentMessages::look_up`](crate::SentMessages::look_up) that it does not have it.
    #[error("perhaps delivered: {detail}")]
    Ambiguous {
        /// The reason, for the log.
        detail: String,
        /// The parts that were certainly accepted.
        pieces_sent: u32,
    },
    /// It can never be delivered, for example because the chat is deleted or the bot is blocked.
    #[error("cannot be delivered: {detail}")]
    Refused {
        /// The reason, for the log.
        detail: String,
    },
}

/// A notice in a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionNotice {
    /// The session.
    pub session: SessionKey,
    /// The text behind the [opening](crate::Message::notice) of a notice. Models and readers of the conversation get
    /// it.
    pub text: String,
}
