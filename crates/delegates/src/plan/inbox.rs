//! What is said to a job while it works through its plan: the step at work reads it with its next model call, and the steps behind
//! it read it with their task.

use std::sync::Arc;

use belay_agent_loop::{LoopContext, LoopError};
use belay_protocol::{Durability, EventKind, JoinedRun, Message, RunId};

use super::state::PlanState;
use belay_run::core::RunCore;

/// The run's own part of a plan, lent to the execution of a step: what is said becomes part of the run, and not of the child.
pub(super) struct PlanInbox<'a> {
    pub(super) core: &'a mut RunCore,
    pub(super) context: &'a mut LoopContext,
    pub(super) state: &'a mut PlanState,
    /// Taken, and not yet a part of the run.
    pub(super) taken: Vec<(RunId, Arc<Message>)>,
}

impl PlanInbox<'_> {
    /// The next thing that was said; `None`: nothing. Where the run ends before [`PlanInbox::keep`], it is told to whoever said it
    /// that nobody has read it.
    ///
    /// # Cancel safety
    /// Dropped midway, what was taken gets a turn of its own.
    pub(super) async fn take(&mut self) -> Option<Arc<Message>> {
        let (run, message) = self.core.take_offer().await?;
        self.taken.push((run, message.clone()));
        Some(message)
    }

    /// The store has what was said as a part of the run, before any model reads it.
    ///
    /// # Errors
    /// The store does not answer: nothing was said.
    ///
    /// # Cancel safety
    /// Dropped midway, the run is over; the store has it either way.
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
