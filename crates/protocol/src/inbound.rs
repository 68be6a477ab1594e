//! What comes in: messages and control, who sends them, and where their answer goes.

use std::sync::Arc;

use serde::Deserialize;

use crate::ack::AckSender;
use crate::control::Control;
use crate::declared::DeclaredOutput;
use crate::idempotency::IdempotencyKey;
use crate::ids::{ChannelId, SessionKey};
use crate::options::RunOptions;
use crate::principal::Principal;
use crate::provenance::Provenance;
use crate::route::ReplyRoute;
use crate::session::SessionLifetime;
use crate::work::Work;

/// One message in, in our own form. Whoever makes it has authenticated the sender and bounded the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Inbound {
    /// The channel it came through.
    pub channel: ChannelId,
    /// The session it belongs to.
    pub session: SessionKey,
    /// What its run is. From a channel it is [`Work::Chat`], whatever the channel says: the outer loop sees to it.
    pub work: Work,
    /// How long its session is kept, where this message creates the session.
    pub lifetime: SessionLifetime,
    /// Who sends it.
    pub principal: Principal,
    /// What makes a second delivery of the same message recognisable; `None`: every delivery is a message of its own.
    pub key: Option<IdempotencyKey>,
    /// Where the reply goes. `None`: nobody is told; whoever asked reads the run.
    pub reply_to: Option<ReplyRoute>,
    /// What it says.
    pub body: Body,
    /// Messages that came before, for a fresh session that brings its own history; empty otherwise.
    pub history: Vec<HistoryLine>,
    /// Whether somebody wants the fragments of the answer from the first one on.
    pub want_deltas: bool,
    /// Outputs that the answer must have, by name and type; empty: a text is the answer.
    pub outputs: Vec<DeclaredOutput>,
    /// Whether another program than the sender's own client relayed it, such as an inline bot: its words are not the sender's
    /// own, so its run asks nobody and it decides nothing. Whether several people read along, [`Provenance::audience`] says.
    pub relayed: bool,
    /// Who wrote it and what came with it, as its platform says; `None`: a text alone.
    pub provenance: Option<Arc<Provenance>>,
    /// What it asks of its run.
    pub options: RunOptions,
}

/// A line of history that a client brings along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryLine {
    /// `system`, `user` or `assistant`.
    pub role: HistoryRole,
    /// The text.
    pub text: String,
}

/// Who said a line of brought history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryRole {
    /// Added to our own instructions.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// What an inbound message says.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Text as typed; the agent parses commands out of it.
    Text(String),
    /// The new text of a message that was sent before, which [`Provenance::message_id`] names. It takes the place of that
    /// message where its turn has not begun, and is refused where it has. Never a command, nor an answer to a question.
    Edit(String),
    /// A structured request of a program. Acted on at once, never queued.
    Control(Control),
}

impl Inbound {
    /// A message of a chat with nothing beside it: no key, no reply wanted, no history, no outputs, no options.
    pub fn new(channel: ChannelId, session: SessionKey, principal: Principal, body: Body) -> Self {
        Self {
            channel,
            session,
            work: Work::Chat,
            lifetime: SessionLifetime::Lasting,
            principal,
            key: None,
            reply_to: None,
            body,
            history: Vec::new(),
            want_deltas: false,
            outputs: Vec::new(),
            relayed: false,
            provenance: None,
            options: RunOptions::default(),
        }
    }

    /// Whether it was forwarded: somebody else's words, which command and decide nothing.
    pub fn is_forwarded(&self) -> bool {
        self.provenance.as_ref().is_some_and(|provenance| provenance.is_forwarded())
    }
}

/// A file that comes with a message. Not accepted yet; the field exists so that it is refused with a clear error.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Attachment {}

/// An inbound message and where its acknowledgement goes.
#[derive(Debug)]
pub struct Envelope {
    /// The message.
    pub inbound: Inbound,
    /// The acknowledgement's way back.
    pub ack: AckSender,
}
