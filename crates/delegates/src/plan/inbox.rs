//! Messages to a job that executes a plan. A working step reads them at its next model call; later steps read them in
//! their task.
//!
//! A message becomes part of the plan's run, not of the step's. So a step asks the flow of the plan for it, which owns
//! that run. Several steps may work at the same time while others wait for a person.

use std::sync::Arc;

use belay_agent_loop::LoopError;
use belay_protocol::{Message, StoreError};
use tokio::sync::{mpsc, oneshot};

/// Requests that wait for the flow. When it is full, the step waits; the flow never waits for a step.
const REQUESTS: usize = 4;

/// A request of a step to the flow of its plan.
pub(super) enum InboxRequest {
    /// The next message, if there is one.
    Take(oneshot::Sender<Option<Arc<Message>>>),
    /// Store the messages that were taken as part of the run.
    Keep(oneshot::Sender<Result<(), LoopError>>),
}

/// A step's way to the messages of the job.
#[derive(Clone)]
pub(super) struct PlanInbox(mpsc::Sender<InboxRequest>);

impl PlanInbox {
    /// The inbox of a plan, and the requests of its steps.
    pub(super) fn new() -> (Self, mpsc::Receiver<InboxRequest>) {
        let (requests, incoming) = mpsc::channel(REQUESTS);
        (Self(requests), incoming)
    }

    /// Takes the next message. Returns `None` when there is none. If the run ends before [`PlanInbox::keep`], the
    /// sender gets a notice that nobody has read the message.
    ///
    /// # Cancel safety
    /// Dropped midway, a message that was taken gets a turn of its own.
    pub(super) async fn take(&self) -> Option<Arc<Message>> {
        let (answer, taken) = oneshot::channel();
        self.0.send(InboxRequest::Take(answer)).await.ok()?;
        taken.await.ok().flatten()
    }

    /// Stores the messages as part of the run, before any model reads them.
    ///
    /// # Errors
    /// The store does not answer: no message has joined the run.
    ///
    /// # Cancel safety
    /// Dropped midway, the run is over. The store keeps the messages, as part of the run or as queued input.
    pub(super) async fn keep(&self) -> Result<(), LoopError> {
        let over = || LoopError::from(StoreError::Unavailable("the plan is over".into()));
        let (answer, kept) = oneshot::channel();
        self.0.send(InboxRequest::Keep(answer)).await.map_err(|_| over())?;
        kept.await.map_err(|_| over())?
    }
}
