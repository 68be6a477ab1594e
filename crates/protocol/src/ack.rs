//! The answer to an inbound message, and the way back to whoever waits for it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
#[derive(Debug)]
pub struct AckSender {
    to: Option<oneshot::Sender<Ack>>,
    /// Second deliveries wait for it too.
    shared: Option<Giver>,
}

impl AckSender {
    /// A sender and the end that waits for it.
    pub fn channel() -> (Self, oneshot::Receiver<Ack>) {
        let (tx, rx) = oneshot::channel();
        (Self { to: Some(tx), shared: None }, rx)
    }

    /// For channels that need no acknowledgement.
    pub fn nobody() -> Self {
        Self { to: None, shared: None }
    }

    /// Lets second deliveries wait for the same answer.
    pub fn shared(self) -> (Self, SharedAck) {
        let shared = SharedAck(Arc::new(Mutex::new(AckState::Waited(Vec::new()))));
        (Self { shared: Some(Giver(shared.clone())), ..self }, shared)
    }

    /// Answers. Whoever waited may have gone away; that changes nothing here.
    pub fn send(self, ack: Ack) {
        if let Some(giver) = self.shared {
            giver.0.settle(Some(&ack));
        }
        if let Some(tx) = self.to {
            let _ = tx.send(ack); // the waiter gave up: its message is accepted all the same
        }
    }
}

/// The acknowledgement of a command or an answer, which second deliveries may wait for.
#[derive(Clone, Debug)]
pub struct SharedAck(Arc<Mutex<AckState>>);

#[derive(Debug)]
enum AckState {
    /// It is not given yet; these wait for it too.
    Waited(Vec<AckSender>),
    /// It was given, or never will be.
    Settled { refused: bool },
}

impl SharedAck {
    /// Has a second delivery wait for the same answer. Gives its sender back where that was given already, and with it
    /// whether the answer was a refusal; one that was dropped unanswered counts as none.
    pub fn join(&self, ack: AckSender) -> Option<(AckSender, bool)> {
        match &mut *self.lock() {
            AckState::Waited(waiters) => {
                waiters.push(ack);
                None
            }
            AckState::Settled { refused } => Some((ack, *refused)),
        }
    }

    /// Whether it is a refusal; not as long as it is not given.
    pub fn is_refused(&self) -> bool {
        matches!(*self.lock(), AckState::Settled { refused: true })
    }

    /// `None`: there will be none, and whoever waits learns that. Only the first call counts.
    fn settle(&self, ack: Option<&Ack>) {
        let refused = match ack {
            Some(Ack::Refused(_)) => true,
            Some(Ack::Command(reply)) => reply.refused,
            _ => false,
        };
        let mut state = self.lock();
        let AckState::Waited(waiters) = &mut *state else { return };
        let waiters = std::mem::take(waiters);
        *state = AckState::Settled { refused };
        drop(state); // a waiter's own end is no business of the lock
        for waiter in waiters {
            if let Some(again) = ack.and_then(Ack::again) {
                waiter.send(again);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, AckState> {
        // Nothing of others runs under it: what a panic leaves behind is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Settles what is dropped unanswered: whoever waits is not left waiting.
#[derive(Debug)]
struct Giver(SharedAck);

impl Drop for Giver {
    fn drop(&mut self) {
        self.0.settle(None);
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

impl Ack {
    /// The same for a second delivery of a command or an answer; `None` for what those are never answered with.
    fn again(&self) -> Option<Self> {
        match self {
            Self::Command(reply) => Some(Self::Command(reply.clone())),
            Self::Refused(refusal) => Some(Self::Refused(refusal.clone())),
            Self::Accepted(Accepted { run_id, session, accepted_at, .. }) => Some(Self::Accepted(Accepted {
                run_id: *run_id,
                session: session.clone(),
                accepted_at: *accepted_at,
                duplicate: true,
                watch: None,
            })),
            _ => None,
        }
    }
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
