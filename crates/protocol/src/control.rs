//! Structured requests of programs to the dispatcher. It carries them out at once and never queues them.

use crate::approval::Decision;
use crate::client_tools::ClientAnswer;
use crate::freeze::FreezeRequest;
use crate::ids::{ApprovalId, RunId, SessionKey};
use crate::job::JobRequest;
use crate::people::PeopleRequest;
use crate::routine_request::RoutineRequest;
use crate::tool_health::ToolRequest;

/// A request to the dispatcher.
#[derive(Clone, Debug, PartialEq)]
pub enum Control {
    /// Stop the target. Answered with [`Ack::Stopped`](crate::Ack::Stopped). The key of a message that is repeated until
    /// everything has ended has the [`OrderId`](crate::OrderId) of that one stop as its `message_id`.
    Stop(StopTarget),
    /// Follow a run. Answered with [`Ack::Watch`](crate::Ack::Watch).
    Watch(RunId),
    /// Report the state of the daemon. Answered with [`Ack::Status`](crate::Ack::Status).
    Status,
    /// Report the context that the model of a session would get now. Answered with
    /// [`Ack::Context`](crate::Ack::Context).
    Context {
        /// The session.
        session: SessionKey,
        /// Whether the report contains the texts too.
        full: bool,
    },
    /// Drain and exit; operators only. Answered with [`Ack::Command`](crate::Ack::Command).
    Shutdown,
    /// Delete a session with all its data; operators only. Refused while one of its messages is being answered.
    /// Answered with [`Ack::Removed`](crate::Ack::Removed).
    DeleteSession(SessionKey),
    /// Reload the conversation of a session, to which the store has added a message. For the agent's own parts; not
    /// answered.
    Refresh(SessionKey),
    /// Create or change a job. Answered with [`Ack::Job`](crate::Ack::Job).
    Job(JobRequest),
    /// Create, change or run a routine. Answered with [`Ack::Routine`](crate::Ack::Routine).
    Routine(Box<RoutineRequest>),
    /// List tools, or enable or disable one. Answered with [`Ack::Tools`](crate::Ack::Tools): all tools, or that one.
    Tools(ToolRequest),
    /// List, begin or end freezes. Answered with [`Ack::Freezes`](crate::Ack::Freezes).
    Freeze(FreezeRequest),
    /// List people, admit or remove one; operators only. Answered with [`Ack::People`](crate::Ack::People).
    People(PeopleRequest),
    /// Answer an approval request. Answered with [`Ack::Command`](crate::Ack::Command).
    Decide {
        /// The approval request.
        approval: ApprovalId,
        /// The answer.
        decision: Decision,
    },
    /// Fill in the form of an approval request. Answered with [`Ack::Command`](crate::Ack::Command).
    FillIn {
        /// The approval request.
        approval: ApprovalId,
        /// The values by field.
        values: serde_json::Map<String, serde_json::Value>,
    },
    /// Give the results of calls that a paused run waits for. Answered with [`Ack::Command`](crate::Ack::Command).
    ClientResults {
        /// The request of the run.
        request: ApprovalId,
        /// The results.
        answer: Box<ClientAnswer>,
    },
}

/// The target of a stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopTarget {
    /// One run.
    Run(RunId),
    /// One run whose only reader has gone away (`client_gone`).
    RunOfGoneClient(RunId),
    /// The running turn and the queue of a session.
    Session(SessionKey),
    /// All runs; operators only.
    All,
}
