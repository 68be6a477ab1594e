//! What goes out.

use std::sync::Arc;
use std::time::Duration;

use crate::approval::Question;
use crate::ids::{OutboxId, RunId};
use crate::route::ReplyRoute;

/// One message on its way to a person, in our own form: Markdown text and where it goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Outbound {
    /// Identifies the delivery; the same over all its attempts.
    pub id: OutboxId,
    /// The run it answers; `None` for the answer to a command.
    pub run_id: Option<RunId>,
    /// Where it goes.
    pub route: ReplyRoute,
    /// Markdown.
    pub text: String,
    /// Pieces that the platform has already taken, when a long message was broken off.
    pub pieces_sent: u32,
    /// The question that it asks, if it is one.
    pub question: Option<Question>,
    /// The message on the platform that it takes the place of: one that has shown the answer while it came.
    pub preview: Option<Arc<str>>,
}

impl Outbound {
    /// A message that asks nothing and takes no other's place, with an id of its own; nothing of it is sent yet. `run_id`:
    /// the run that it answers, if it is an answer.
    pub fn new(run_id: Option<RunId>, route: ReplyRoute, text: impl Into<String>) -> Self {
        let (id, text) = (OutboxId::new(), text.into());
        Self { id, run_id, route, text, pieces_sent: 0, question: None, preview: None }
    }
}

/// A delivery that did not work.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DeliverError {
    /// Nothing has been shown; try again, not before the delay if there is one.
    #[error("not delivered, try again{}: {detail}", after.map(|d| format!(" after {} ms", d.as_millis())).unwrap_or_default())]
    Retry {
        /// The platform's own delay (429).
        after: Option<Duration>,
        /// For the log.
        detail: String,
        /// Pieces that the platform has taken so far, those of earlier attempts included.
        pieces_sent: u32,
    },
    /// The request went out and no answer came: it may or may not have been shown. Not tried again.
    #[error("perhaps delivered: {detail}")]
    Ambiguous {
        /// For the log.
        detail: String,
        /// Pieces that were certainly taken.
        pieces_sent: u32,
    },
    /// It will never work (the chat is gone, the bot is blocked).
    #[error("cannot be delivered: {detail}")]
    Refused {
        /// For the log.
        detail: String,
    },
}
