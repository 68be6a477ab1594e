//! Inbound messages: text and control messages, their senders, and the destinations of their replies.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ack::AckSender;
use crate::control::Control;
use crate::declared::DeclaredOutput;
use crate::idempotency::IdempotencyKey;
use crate::ids::{ChannelId, SessionKey};
use crate::message::{Message, MessageBody};
use crate::options::RunOptions;
use crate::principal::Principal;
use crate::provenance::Provenance;
use crate::route::ReplyRoute;
use crate::session::SessionLifetime;
use crate::work::{Work, WorkSource};

/// One inbound message in Belay's own form. The channel that makes it has authenticated the sender and limited the
/// text.
#[derive(Clone, Debug, PartialEq)]
pub struct Inbound {
    /// The channel it came through.
    pub channel: ChannelId,
    /// The session it belongs to.
    pub session: SessionKey,
    /// The kind of work of its run. The outer loop sets it to [`Work::Chat`] for every message of a channel.
    pub work: Work,
    /// The source of autonomous work; `None` for other messages.
    pub source: Option<Arc<WorkSource>>,
    /// The lifetime of its session, if this message creates the session.
    pub lifetime: SessionLifetime,
    /// The sender.
    pub principal: Principal,
    /// The key that recognises a redelivery; `None`: every delivery is a message of its own.
    pub key: Option<IdempotencyKey>,
    /// The destination of the reply. `None`: no reply is delivered; the client reads the run.
    pub reply_to: Option<ReplyRoute>,
    /// The content.
    pub body: Body,
    /// Earlier messages, for a fresh session that brings its own history; empty otherwise.
    pub history: Vec<HistoryLine>,
    /// Whether a reader wants the deltas of the answer from the first one on.
    pub want_deltas: bool,
    /// Whether the sender cannot read the answer later, so that a freeze refuses the message instead of keeping it.
    pub only_now: bool,
    /// Outputs that the answer must have, by name and type; empty: the answer is a text.
    pub outputs: Vec<DeclaredOutput>,
    /// Whether another program than the sender's own client wrote the text, such as an inline bot. Its words are not
    /// the sender's own: they are untrusted content, and its run asks nobody for approval. [`Self::is_relayed`] is the
    /// question that decides about commands and answers.
    pub relayed: bool,
    /// The platform's facts about the message; `None`: there is a text alone.
    pub provenance: Option<Arc<Provenance>>,
    /// The options of its run.
    pub options: RunOptions,
}

/// A line of history that a client has sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryLine {
    /// The author.
    pub role: HistoryRole,
    /// The text; of calls and results the JSON of a [`Message`].
    pub text: String,
}

impl HistoryLine {
    /// Calls of the model, or a result of such a call.
    pub fn of_tools(message: &Message) -> Self {
        let role = match message.body {
            MessageBody::Tool(_) => HistoryRole::Result,
            _ => HistoryRole::Calls,
        };
        Self { role, text: serde_json::to_string(message).unwrap_or_default() }
    }

    /// The calls, or the result; `None`: it is a text.
    pub fn tools(&self) -> Option<Message> {
        match self.role {
            HistoryRole::Calls | HistoryRole::Result => serde_json::from_str(&self.text).ok(),
            HistoryRole::System | HistoryRole::User | HistoryRole::Assistant => None,
        }
    }
}

/// The author of such a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryRole {
    /// An instruction, which is added to those of Belay.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The model, with calls of tools.
    Calls,
    /// The program that carried a call out.
    Result,
}

/// The content of an inbound message.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Text as it was typed. The agent parses commands out of it.
    Text(String),
    /// The new text of an earlier message, which [`Provenance::message_id`] names. It replaces the text if the
    /// message's turn has not begun, and is refused otherwise. It is never a command or an answer to a question.
    Edit(String),
    /// A structured request of a program. The dispatcher carries it out at once and never queues it.
    Control(Control),
}

impl Inbound {
    /// A chat message with defaults: no key, no reply, no history, no outputs, no options.
    pub fn new(channel: ChannelId, session: SessionKey, principal: Principal, body: Body) -> Self {
        Self {
            channel,
            session,
            work: Work::Chat,
            source: None,
            lifetime: SessionLifetime::Lasting,
            principal,
            key: None,
            reply_to: None,
            body,
            history: Vec::new(),
            want_deltas: false,
            only_now: false,
            outputs: Vec::new(),
            relayed: false,
            provenance: None,
            options: RunOptions::default(),
        }
    }

    /// Whether somebody other than its sender wrote the text: a bot, or the author of a forwarded message. Such a text
    /// is never a command, an answer to a question or the trigger of a routine.
    pub fn is_relayed(&self) -> bool {
        self.relayed || self.provenance.as_ref().is_some_and(|provenance| provenance.is_forwarded())
    }

    /// Gives the text of a relayed message another author than its sender, unless the channel has named one. So the
    /// text is untrusted content wherever it is read again: in the queue, after a restart, and in a repeated turn.
    #[must_use]
    pub fn with_author(mut self) -> Self {
        if self.relayed && !self.provenance.as_ref().is_some_and(|provenance| provenance.is_forwarded()) {
            let provenance = Arc::make_mut(self.provenance.get_or_insert_default());
            provenance.forwarded_from = Some("another program".to_owned());
        }
        self
    }
}

/// An inbound message and the sender of its acknowledgement.
#[derive(Debug)]
pub struct Envelope {
    /// The message.
    pub inbound: Inbound,
    /// Receives the acknowledgement.
    pub ack: AckSender,
}
