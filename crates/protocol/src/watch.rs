//! Watches: following a run from its acceptance to its end.

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
    /// The time of its commit; for a duplicate that of the first delivery.
    pub accepted_at: UnixMillis,
    /// Whether it was committed before.
    pub duplicate: bool,
    /// What its sender reads if a freeze keeps its run from beginning.
    pub frozen: Option<String>,
    /// The watch of the run. `None`: the message is a duplicate of a run that is no longer live; the store has its
    /// record.
    pub watch: Option<RunWatch>,
}

/// Follows a live run.
#[derive(Debug)]
pub struct RunWatch {
    /// The run.
    pub run_id: RunId,
    /// The record of the run: set when its end is committed or while it waits for a person (status `paused`), and unset
    /// when it resumes. A closed channel without a value: the store has the record.
    pub finished: watch::Receiver<Option<Arc<RunRecord>>>,
    /// The fragments from now on, or from the first one on if the message has asked for them.
    pub deltas: Option<broadcast::Receiver<Delta>>,
    /// The text before these fragments in the present step; empty if no fragments were asked for.
    pub so_far: Partial,
}

impl RunWatch {
    /// Waits for the end of the run; `None`: the run was released without an end, and the store knows more.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn ended(&mut self) -> Option<Arc<RunRecord>> {
        let has_ended = |record: &Option<Arc<RunRecord>>| record.as_ref().is_some_and(|record| record.status.is_end());
        self.finished.wait_for(has_ended).await.ok()?.clone()
    }
}

/// An unfinished answer: the output of the model so far in one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partial {
    /// The step, from 1; 0 before the first one.
    pub step: u32,
    /// The text.
    pub text: String,
    /// The reasoning.
    pub reasoning: String,
}

impl Partial {
    /// Begins a step with empty texts.
    pub fn begin(&mut self, step: u32) {
        self.step = step;
        self.text.clear();
        self.reasoning.clear();
    }
}
