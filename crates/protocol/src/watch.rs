//! Following a run from its acceptance to its end.

use std::sync::Arc;

use tokio::sync::{broadcast, watch};

use crate::ids::{RunId, SessionKey};
use crate::model::Delta;
use crate::run::RunRecord;
use crate::time::UnixMillis;

/// A committed message.
#[derive(Debug)]
pub struct Accepted {
    /// Its run.
    pub run_id: RunId,
    /// Its session.
    pub session: SessionKey,
    /// When it was committed: the first time, for a duplicate.
    pub accepted_at: UnixMillis,
    /// Whether it had been committed before.
    pub duplicate: bool,
    /// The run, for whoever waits. `None` for a duplicate of a run that is no longer alive: read the store.
    pub watch: Option<RunWatch>,
}

/// Follows a living run.
#[derive(Debug)]
pub struct RunWatch {
    /// The run.
    pub run_id: RunId,
    /// Filled when the run has ended and its end is committed, or while it rests on a question (the record says
    /// `paused`); emptied when it goes on. A closed channel without a value: read the store.
    pub finished: watch::Receiver<Option<Arc<RunRecord>>>,
    /// The fragments from now on; from the first one when the message asked for them.
    pub deltas: Option<broadcast::Receiver<Delta>>,
    /// What was said before those fragments, in the step that the run is at; empty where none were asked for.
    pub so_far: Partial,
}

impl RunWatch {
    /// Waits for the end of the run; `None`: it was let go without one, and the store knows more.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn ended(&mut self) -> Option<Arc<RunRecord>> {
        let has_ended = |record: &Option<Arc<RunRecord>>| record.as_ref().is_some_and(|record| record.status.is_end());
        self.finished.wait_for(has_ended).await.ok()?.clone()
    }
}

/// An answer that is on its way: what the model has said so far in one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partial {
    /// The step, from 1; 0 before the first.
    pub step: u32,
    /// The text.
    pub text: String,
    /// The reasoning.
    pub reasoning: String,
}

impl Partial {
    /// Begins the step, with nothing said.
    pub fn begin(&mut self, step: u32) {
        self.step = step;
        self.text.clear();
        self.reasoning.clear();
    }
}
