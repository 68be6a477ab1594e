//! Structured requests of programs to the dispatcher. They are acted on at once, never queued.

use crate::approval::Decision;
use crate::ids::{GateId, RunId, SessionKey};
use crate::job::JobRequest;
use crate::routine_request::RoutineRequest;
use crate::tool_health::ToolRequest;

/// A request to the dispatcher itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Control {
    /// Stop what the target names. Answered with [`Ack::Stopped`](crate::Ack::Stopped).
    Stop(StopTarget),
    /// Follow a run. Answered with [`Ack::Watch`](crate::Ack::Watch).
    Watch(RunId),
    /// What is going on. Answered with [`Ack::Status`](crate::Ack::Status).
    Status,
    /// What the model of a session would be told now, with the texts themselves or without. Answered with [`Ack::Context`](crate::Ack::Context).
    Context {
        /// The session.
        session: SessionKey,
        /// Whether the texts are wanted too.
        full: bool,
    },
    /// Drain and end; operators only. Answered with [`Ack::Command`](crate::Ack::Command).
    Shutdown,
    /// Delete a session with everything of it, unless a message of it is still being answered; operators only. Answered with
    /// [`Ack::Removed`](crate::Ack::Removed).
    DeleteSession(SessionKey),
    /// Read the conversation of a session anew, into which the store has put something. Of the agent's own parts; not answered.
    Refresh(SessionKey),
    /// Make or change a job. Answered with [`Ack::Job`](crate::Ack::Job).
    Job(JobRequest),
    /// Make, change or fire a routine. Answered with [`Ack::Routine`](crate::Ack::Routine).
    Routine(Box<RoutineRequest>),
    /// List tools, or switch one on or off. Answered with [`Ack::Tools`](crate::Ack::Tools): all of them, or the one.
    Tools(ToolRequest),
    /// Answer a question about a tool call. Answered with [`Ack::Command`](crate::Ack::Command).
    Decide {
        /// The question.
        gate: GateId,
        /// The answer.
        decision: Decision,
    },
}

/// What to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopTarget {
    /// One run, for this reason or for the default one of the principal.
    Run(RunId),
    /// One run whose only reader has gone away (`client_gone`).
    RunOfGoneClient(RunId),
    /// The running turn and the queue of a session.
    Session(SessionKey),
    /// Everything; operators only.
    All,
}
