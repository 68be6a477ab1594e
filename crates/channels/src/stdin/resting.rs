//! Runs that rest on a question, until they go on: by an answer from here or from elsewhere, or because nobody gave one.

use std::future::pending;
use std::sync::Arc;

use belay_protocol::{RunId, RunRecord, RunWatch};
use futures_util::future::select_all;

/// Runs that rest.
#[derive(Default)]
pub(super) struct Resting(Vec<Rest>);

/// A run and the record with which it rests.
pub(super) struct Rest {
    pub(super) watch: RunWatch,
    pub(super) record: Arc<RunRecord>,
    /// Whether it has been answered and is about to go on.
    is_answered: bool,
}

impl Resting {
    pub(super) fn add(&mut self, watch: RunWatch, record: Arc<RunRecord>) {
        self.0.push(Rest { watch, record, is_answered: false });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes that a run has its answer.
    pub(super) fn answered(&mut self, run: RunId) {
        self.0.iter_mut().filter(|rest| rest.watch.run_id == run).for_each(|rest| rest.is_answered = true);
    }

    /// Whether one of them is about to go on.
    pub(super) fn one_goes_on(&self) -> bool {
        self.0.iter().any(|rest| rest.is_answered)
    }

    /// The first one that rests no longer; never, while all do. Cancel safe.
    pub(super) async fn next(&mut self) -> Rest {
        if self.0.is_empty() {
            return pending().await;
        }
        let (_, at, _) = select_all(self.0.iter_mut().map(|rest| Box::pin(rest.is_over()))).await;
        self.0.swap_remove(at)
    }
}

impl Rest {
    /// Returns when the run goes on, has ended, or nobody works on it any more.
    async fn is_over(&mut self) {
        let Self { watch, record, .. } = self;
        let _ = watch.finished.wait_for(|now| !rests_with(now.as_ref(), record)).await; // closed: over too
    }
}

/// Whether that is the record with which a run rested.
pub(super) fn rests_with(now: Option<&Arc<RunRecord>>, then: &Arc<RunRecord>) -> bool {
    now.is_some_and(|now| Arc::ptr_eq(now, then))
}
