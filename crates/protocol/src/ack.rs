//! The acknowledgement of an inbound message, and its way back to the sender.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::archive::Removed;
use crate::context::ContextReport;
use crate::freeze::Freeze;
use crate::ids::RunId;
use crate::job::JobRecord;
use crate::people::PeopleReport;
use crate::process::StillRunning;
use crate::routine_request::RoutineAnswer;
use crate::status::StatusReport;
use crate::tool_health::ToolHealth;
use crate::watch::{Accepted, RunWatch};

/// Receives the one acknowledgement of a message. The channel turns it into the answer of its protocol: an HTTP status,
/// a 200 for Telegram.
///
/// The agent itself informs the person: if [`Inbound::reply_to`](crate::Inbound::reply_to) is set, replies to commands
/// and refusals are delivered to that conversation as well. Refusals after which the channel offers the message again
/// (busy, store, shutting down) are not.
///
/// If the sender is dropped without an acknowledgement, the receiver learns that nothing was accepted.
pub struct AckSender {
    to: Option<oneshot::Sender<Ack>>,
    observer: Option<Observer>,
}

/// Called once: with the acknowledgement, or with `None` when the sender is dropped without one.
type Observer = Box<dyn FnOnce(Option<&Ack>) + Send + Sync>;

impl AckSender {
    /// A sender, and the receiver that waits for its acknowledgement.
    pub fn channel() -> (Self, oneshot::Receiver<Ack>) {
        let (tx, rx) = oneshot::channel();
        (Self { to: Some(tx), observer: None }, rx)
    }

    /// A sender whose acknowledgement nobody reads.
    pub fn nobody() -> Self {
        Self { to: None, observer: None }
    }

    /// Shows the acknowledgement to `observer` before it is sent, or `None` when the sender is dropped without one. An
    /// earlier observer is replaced and sees `None`.
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

/// The acknowledgement of an inbound message.
#[derive(Debug)]
pub enum Ack {
    /// The message is committed.
    Accepted(Accepted),
    /// The message was a command, and this is the reply.
    Command(CommandReply),
    /// The result of a stop.
    Stopped(StopReport),
    /// The counts of a deletion.
    Removed(Removed),
    /// The run that was asked for; `None`: it is not live, and the store knows more.
    Watch(Option<RunWatch>),
    /// The state of the daemon.
    Status(Box<StatusReport>),
    /// The context that the model of a session would get.
    Context(Box<ContextReport>),
    /// A job in its present state.
    Job(Box<JobRecord>),
    /// The result of a request about routines.
    Routine(RoutineAnswer),
    /// Tools with their health.
    Tools(Vec<ToolHealth>),
    /// The freezes in force.
    Freezes(Vec<Freeze>),
    /// The people of all channels.
    People(Box<PeopleReport>),
    /// The message is not accepted.
    Refused(Refusal),
}

/// The reply to a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandReply {
    /// The recognised command, with its slash.
    pub command: String,
    /// The text for the person, in Markdown.
    pub reply: String,
    /// The run that the command resumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumes: Option<RunId>,
    /// Whether the command failed: nothing has changed, and the reply has the reason.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
}

/// The result of a stop.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StopReport {
    /// Runs whose status is now `stopped`.
    pub stopped: Vec<RunId>,
    /// Runs and processes that have not ended yet.
    pub still_running: Vec<StillRunning>,
    /// Background processes whose end was requested.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ended_processes: usize,
    /// Living nodes of the cluster that have not answered yet. The stop is stored, and they carry it out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_nodes: Vec<String>,
}

// Serde calls it with a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl StopReport {
    /// The line about background processes; `None`: none was ended.
    pub fn processes_line(&self) -> Option<String> {
        match self.ended_processes {
            0 => None,
            1 => Some("Ended a background process.".to_owned()),
            n => Some(format!("Ended {n} background processes.")),
        }
    }

    /// The line about nodes that have not answered; `None`: there are none.
    pub fn pending_line(&self) -> Option<String> {
        (!self.pending_nodes.is_empty()).then(|| format!("No answer yet from {}.", self.pending_nodes.join(", ")))
    }
}

impl fmt::Display for StopReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = match (self.stopped.len(), self.still_running.len()) {
            (0, 0) if self.ended_processes > 0 => None,
            (0, 0) => Some("Nothing is running.".to_owned()),
            (n, 0) => Some(format!("Stopped {n} run{}.", if n == 1 { "" } else { "s" })),
            (n, m) => Some(format!("Stopped {n} run{}; {m} still ending.", if n == 1 { "" } else { "s" })),
        };
        let lines = runs.into_iter().chain(self.processes_line()).chain(self.pending_line());
        f.write_str(&lines.collect::<Vec<_>>().join(" "))
    }
}

/// The reason for which a message was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The queue of the session or of the sender is full.
    #[error("busy: {what}; try again in {} ms", retry_after.as_millis())]
    Busy {
        /// The name of the full queue.
        what: String,
        /// The delay after which the sender may try again.
        retry_after: Duration,
    },
    /// The queues of the whole daemon are full, for every sender.
    #[error("overloaded: {what}; try again in {} ms", retry_after.as_millis())]
    Overloaded {
        /// The name of the full queue.
        what: String,
        /// The delay after which the sender may try again.
        retry_after: Duration,
    },
    /// The idempotency key was used before for a message with another text, other options or other outputs.
    #[error(
        "the idempotency key was used for another message, or for this one with other options (run {run_id}); send this \
         under a new key"
    )]
    Conflict {
        /// The run of the first message.
        run_id: RunId,
    },
    /// The idempotency key was used before for another command, or for another answer to a question.
    #[error("the idempotency key was used for another command, or an answer to a question; send this under a new key")]
    ConflictWithCommand,
    /// Only an operator or the owner may do this.
    #[error("{0}")]
    Forbidden(String),
    /// The daemon is draining.
    #[error("Belay is shutting down")]
    ShuttingDown,
    /// An operator has frozen the work, and the sender cannot wait for the thaw.
    #[error("{0}")]
    Frozen(String),
    /// The message is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The named object does not exist.
    #[error("{0}")]
    Unknown(String),
    /// The question was decided before; the text is that decision.
    #[error("{0}")]
    Decided(String),
    /// The store failed, so nothing was accepted.
    #[error("the message could not be stored: {0}")]
    Store(String),
}

/// The delay before a message is sent again whose refusal names none. 1 s: a full disk or a restart lasts longer, and a
/// pause that is much longer would delay the message without need.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

impl Refusal {
    /// The delay after which the same message may be sent again. `None`: it is refused for good, and the sender changes
    /// it or gives it up.
    pub fn again(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. } | Self::Overloaded { retry_after, .. } => Some(*retry_after),
            Self::Store(_) | Self::ShuttingDown => Some(AGAIN_AFTER),
            Self::Conflict { .. }
            | Self::ConflictWithCommand
            | Self::Forbidden(_)
            | Self::Frozen(_)
            | Self::Invalid(_)
            | Self::Unknown(_)
            | Self::Decided(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_sent_again_after_a_full_queue_and_a_failure_and_after_nothing_else() {
        let (what, retry_after) = (|| "lane".to_owned(), Duration::from_millis(250));
        for (refusal, again) in [
            (Refusal::Busy { what: what(), retry_after }, Some(retry_after)),
            (Refusal::Overloaded { what: what(), retry_after }, Some(retry_after)),
            (Refusal::Store(what()), Some(AGAIN_AFTER)),
            (Refusal::ShuttingDown, Some(AGAIN_AFTER)),
            (Refusal::ConflictWithCommand, None),
            (Refusal::Forbidden(what()), None),
            (Refusal::Frozen(what()), None),
            (Refusal::Invalid(what()), None),
            (Refusal::Unknown(what()), None),
            (Refusal::Decided(what()), None),
        ] {
            assert_eq!(refusal.again(), again, "{refusal}");
        }
    }
}
