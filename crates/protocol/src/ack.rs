//! The answer to an inbound message, and the way back to whoever waits for it.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::oneshot;

use crate::archive::Removed;
use crate::context::ContextReport;
use crate::ids::RunId;
use crate::job::JobRecord;
use crate::process::StillRunning;
use crate::routine_request::RoutineAnswer;
use crate::status::StatusReport;
use crate::tool_health::ToolHealth;
use crate::watch::{Accepted, RunWatch};

/// Takes the one acknowledgement of a message: what its channel's own protocol needs (an HTTP status, a Telegram 200).
///
/// The person is told by the agent: where [`Inbound::reply_to`](crate::Inbound::reply_to) is set, answers to commands and refusals are delivered
/// to that conversation as well, except refusals after which the channel offers the message again (busy, store,
/// shutting down). Dropped unanswered, the other end learns that nothing was accepted.
pub struct AckSender {
    to: Option<oneshot::Sender<Ack>>,
    observer: Option<Observer>,
}

/// Called once: with the acknowledgement, or with `None` when the sender is dropped without one.
type Observer = Box<dyn FnOnce(Option<&Ack>) + Send + Sync>;

impl AckSender {
    /// A sender and the end that waits for it.
    pub fn channel() -> (Self, oneshot::Receiver<Ack>) {
        let (tx, rx) = oneshot::channel();
        (Self { to: Some(tx), observer: None }, rx)
    }

    /// For channels that need no acknowledgement.
    pub fn nobody() -> Self {
        Self { to: None, observer: None }
    }

    /// Shows the acknowledgement to `observer` before it is sent, or `None` when the sender is dropped without one. An earlier
    /// observer is replaced and sees `None`.
    #[must_use]
    pub fn observed(mut self, observer: impl FnOnce(Option<&Ack>) + Send + Sync + 'static) -> Self {
        let earlier = self.observer.replace(Box::new(observer));
        if let Some(earlier) = earlier {
            earlier(None);
        }
        self
    }

    /// Sends the acknowledgement. A receiver that is gone changes nothing: the message is accepted all the same.
    pub fn send(mut self, ack: Ack) {
        if let Some(observer) = self.observer.take() {
            observer(Some(&ack));
        }
        if let Some(to) = self.to.take() {
            let _ = to.send(ack); // the receiver is gone
        }
    }
}

impl Drop for AckSender {
    fn drop(&mut self) {
        if let Some(observer) = self.observer.take() {
            observer(None);
        }
    }
}

impl fmt::Debug for AckSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AckSender").field("to", &self.to).field("observed", &self.observer.is_some()).finish()
    }
}

/// The answer to an inbound message.
#[derive(Debug)]
pub enum Ack {
    /// It is committed.
    Accepted(Accepted),
    /// It was a command, and this is the answer.
    Command(CommandReply),
    /// What a stop has done.
    Stopped(StopReport),
    /// What was deleted.
    Removed(Removed),
    /// The run, while it is alive; `None`: it is not (the store knows more).
    Watch(Option<RunWatch>),
    /// What is going on.
    Status(Box<StatusReport>),
    /// What the model would be told.
    Context(Box<ContextReport>),
    /// A job, as it stands now.
    Job(Box<JobRecord>),
    /// What became of a request about routines.
    Routine(RoutineAnswer),
    /// Tools, and how they get on.
    Tools(Vec<ToolHealth>),
    /// It is not accepted.
    Refused(Refusal),
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CommandReply {
    /// The command as recognised, with its slash.
    pub command: String,
    /// Markdown for the person.
    pub reply: String,
    /// The run that goes on because of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumes: Option<RunId>,
    /// Whether it did not do what it is for: nothing has changed, and the reply says why.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
}

/// What a stop has done.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StopReport {
    /// Runs whose status is `stopped` now.
    pub stopped: Vec<RunId>,
    /// What has not ended yet.
    pub still_running: Vec<StillRunning>,
}

impl fmt::Display for StopReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.stopped.len(), self.still_running.len()) {
            (0, 0) => write!(f, "Nothing is running."),
            (n, 0) => write!(f, "Stopped {n} run{}.", if n == 1 { "" } else { "s" }),
            (n, m) => write!(f, "Stopped {n} run{}; {m} still ending.", if n == 1 { "" } else { "s" }),
        }
    }
}

/// Why a message was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The queue of the session, or of whoever sends, is full.
    #[error("busy: {what}; try again in {} ms", retry_after.as_millis())]
    Busy {
        /// What is full.
        what: String,
        /// When to try again.
        retry_after: Duration,
    },
    /// Too much waits in the whole daemon, whoever sent it.
    #[error("overloaded: {what}; try again in {} ms", retry_after.as_millis())]
    Overloaded {
        /// What is full.
        what: String,
        /// When to try again.
        retry_after: Duration,
    },
    /// The same idempotency key came with another text, other options or other outputs.
    #[error(
        "the idempotency key was used for another message, or for this one with other options (run {run_id}); send this \
         under a new key"
    )]
    Conflict {
        /// The run of the first message.
        run_id: RunId,
    },
    /// The same idempotency key came with something else than the command, or the answer to a question, that was acted on
    /// under it.
    #[error("the idempotency key was used for another command, or an answer to a question; send this under a new key")]
    ConflictWithCommand,
    /// Only an operator, or the owner, may.
    #[error("{0}")]
    Forbidden(String),
    /// The daemon drains.
    #[error("Belay is shutting down")]
    ShuttingDown,
    /// The message cannot be used.
    #[error("{0}")]
    Invalid(String),
    /// What was named does not exist.
    #[error("{0}")]
    Unknown(String),
    /// It was decided before; the words say how.
    #[error("{0}")]
    Decided(String),
    /// The store did not take it: nothing was accepted.
    #[error("the message could not be stored: {0}")]
    Store(String),
}
