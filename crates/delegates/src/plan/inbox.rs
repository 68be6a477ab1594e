//! Messages to a job that executes a plan. The current step reads them at its next model call; later steps read them
//! in their task.

use std::sync::Arc;

use belay_agent_loop::{LoopContext, LoopError};
use belay_protocol::{Durability, EventKind, JoinedRun, Message, RunId};

use super::state::PlanState;
use belay_run::core::RunCore;

/// The parts of the plan's run that the execution of a step borrows. A message becomes part of that run, not of the
/// child run.
pub(super) struct PlanInbox<'a> {
    pub(super) core: &'a mut RunCore,
    pub(super) context: &'a mut LoopContext,
    pub(super) state: &'a mut PlanState,
    /// Messages that are not stored as part of the run yet.
    pub(super) taken: Vec<(RunId, Arc<Message>)>,
}

impl PlanInbox<'_> {
    /// Takes the next message. Returns `None` when there is none. If the run ends before [`PlanInbox::keep`], the
    /// sender gets a notice that nobody has read the message.
    ///
    /// # Cancel safety
    /// Dropped midway, a message that was taken gets a turn of its own.
    pub(super) async fn take(&mut self) -> Option<Arc<Message>> {
        let (run, message) = self.core.take_offer().await?;
        self.taken.push((run, message.clone()));
        Some(message)
    }

    /// Stores the messages as part of the run, before any model reads them.
    ///
    /// # Errors
    /// The store does not answer: no message has joined the run.
    ///
    /// # Cancel safety
    /// Dropped midway, the run is over. The store keeps the messages, as part of the run or as queued input.
    pub(super) async fn keep(&mut self) -> Result<(), LoopError> {
        let at = self.core.services.clock.now();
        let (runs, said): (Vec<RunId>, Vec<Arc<Message>>) = std::mem::take(&mut self.taken).into_iter().unzip();
        let joined: Vec<JoinedRun> = runs.iter().map(|run| JoinedRun { run: *run, how: "steer", at }).collect();
        let (messages, before) = (self.context.messages.len(), self.state.clone());
        for message in said {
            self.state.hear(&message.for_model());
            self.context.messages.push(message);
        }
        self.state.write(&mut self.context.state.delegate);
        self.core.journal.note(EventKind::Joined { runs, mode: "steer".into() });
        self.core.journal.join(&joined);
        if let Err(error) = self.core.journal.write(self.context, Durability::Committed).await {
            self.context.messages.truncate(messages);
            *self.state = before;
            self.state.write(&mut self.context.state.delegate);
            return Err(error.into());
        }
        if let Some(joining) = &self.core.joining {
            joining.committed(&joined);
        }
        Ok(())
    }
}
