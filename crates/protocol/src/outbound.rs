//! Outbound messages and the errors of their delivery.

use std::sync::Arc;
use std::time::Duration;

use crate::approval::Question;
use crate::ids::{OutboxId, RunId, SessionKey};
use crate::route::ReplyRoute;

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
}

impl Outbound {
    /// A message with an id of its own, without an approval request and without a preview, of which nothing is
    /// delivered yet. `run_id`: the run that it answers, if any.
    pub fn new(run_id: Option<RunId>, route: ReplyRoute, text: impl Into<String>) -> Self {
        let (id, text) = (OutboxId::new(), text.into());
        Self { id, run_id, route, text, pieces_sent: 0, question: None, preview: None }
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
    /// The request was sent and no answer came: the message may or may not have been delivered. It is not retried.
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
