//! The steps of a plan that have begun and not ended. A step begins beside others only while they wait for a
//! person.

use belay_agent_loop::LoopError;
use belay_run::deadlines::WaitClock;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::inbox::InboxRequest;
use super::step::ChildEnd;

/// The end of an execution: the step, its end, and the number of model calls that began.
pub(super) type StepEnd = (usize, Result<ChildEnd, LoopError>, u32);

/// An execution of a step.
pub(super) struct RunningStep<'a> {
    pub(super) index: usize,
    pub(super) waits: WaitClock,
    pub(super) cancel: CancellationToken,
    pub(super) work: BoxFuture<'a, StepEnd>,
}

/// The executions at the same time.
#[derive(Default)]
pub(super) struct RunningSteps<'a> {
    steps: Vec<(usize, WaitClock, CancellationToken)>,
    work: FuturesUnordered<BoxFuture<'a, StepEnd>>,
}

impl<'a> RunningSteps<'a> {
    pub(super) fn add(&mut self, step: RunningStep<'a>) {
        let RunningStep { index, waits, cancel, work } = step;
        self.steps.push((index, waits, cancel));
        self.work.push(work);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub(super) fn indexes(&self) -> Vec<usize> {
        self.steps.iter().map(|(step, ..)| *step).collect()
    }

    /// Whether every step waits for a person, or none runs.
    pub(super) fn all_wait(&self) -> bool {
        self.steps.iter().all(|(_, waits, _)| waits.is_open())
    }

    /// Lets the steps work, and returns the next end. `None`: none runs.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn ended(&mut self) -> Option<StepEnd> {
        let ended = self.work.next().await?;
        self.steps.retain(|(step, ..)| *step != ended.0);
        Some(ended)
    }

    /// Tells all steps to stop, and returns their ends. Their requests are not answered any more.
    pub(super) async fn stop(mut self, requests: &mut mpsc::Receiver<InboxRequest>) -> Vec<StepEnd> {
        self.steps.iter().for_each(|(_, _, cancel)| cancel.cancel());
        requests.close();
        while requests.try_recv().is_ok() {} // a step that waits for an answer gets none
        let mut ends = Vec::new();
        while let Some(ended) = self.ended().await {
            ends.push(ended);
        }
        ends
    }
}
