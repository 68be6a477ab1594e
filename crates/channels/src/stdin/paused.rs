//! Runs that wait for approval, until they continue: after an answer from this or another channel, or because the
//! request expired.

use std::future::pending;
use std::sync::Arc;

use belay_protocol::{RunId, RunRecord, RunWatch};
use futures_util::future::select_all;

/// The runs that wait for approval.
#[derive(Default)]
pub(super) struct PausedRuns(Vec<PausedRun>);

/// A run and the record with which it paused.
pub(super) struct PausedRun {
    pub(super) watch: RunWatch,
    pub(super) record: Arc<RunRecord>,
    /// Whether the request has been answered, so that the run is about to continue.
    is_answered: bool,
}

impl PausedRuns {
    pub(super) fn add(&mut self, watch: RunWatch, record: Arc<RunRecord>) {
        self.0.push(PausedRun { watch, record, is_answered: false });
    }

    /// Whether this run is one of them.
    pub(super) fn has(&self, run: RunId) -> bool {
        self.0.iter().any(|paused| paused.watch.run_id == run)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records that the approval request of a run has been answered.
    pub(super) fn answered(&mut self, run: RunId) {
        self.0.iter_mut().filter(|rest| rest.watch.run_id == run).for_each(|rest| rest.is_answered = true);
    }

    /// Whether one of the runs is about to continue.
    pub(super) fn any_continues(&self) -> bool {
        self.0.iter().any(|rest| rest.is_answered)
    }

    /// Returns the first run that is no longer paused. Pending while all are paused. Cancel safe.
    pub(super) async fn next(&mut self) -> PausedRun {
        if self.0.is_empty() {
            return pending().await;
        }
        let (_, at, _) = select_all(self.0.iter_mut().map(|rest| Box::pin(rest.is_over()))).await;
        self.0.swap_remove(at)
    }
}

impl PausedRun {
    /// Returns when the run continues or has ended, or when its record is no longer updated.
    async fn is_over(&mut self) {
        let Self { watch, record, .. } = self;
        let _ = watch.finished.wait_for(|now| !is_paused_with(now.as_ref(), record)).await; // closed: over too
    }
}

/// Whether the current record is the one with which the run paused.
pub(super) fn is_paused_with(now: Option<&Arc<RunRecord>>, then: &Arc<RunRecord>) -> bool {
    now.is_some_and(|now| Arc::ptr_eq(now, then))
}
