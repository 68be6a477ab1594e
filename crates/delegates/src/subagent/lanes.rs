//! Slots for subagents, over all sessions. Each depth has slots of its own, so that a subagent that waits for its
//! children never holds a slot that they need.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::container::WorkersParts;
use belay_run::config::SubagentsConfig;
use belay_run::live::LiveRun;

/// Interval at which a run that waits for a slot reports that it is alive. It is far below the default of
/// `jobs.stuck_threshold_s`, 300 s.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// Services with which runs start other runs, over all sessions.
pub struct ChildServices {
    /// Slots for subagents.
    pub lanes: SubagentLanes,
    /// The parts of workers. `None`: there are no workers.
    pub workers: Option<WorkersParts>,
}

impl ChildServices {
    /// Services without workers.
    #[cfg(test)]
    pub(crate) fn without_workers(config: &SubagentsConfig) -> Self {
        Self { lanes: SubagentLanes::new(config), workers: None }
    }
}

/// The slots of all depths.
#[derive(Debug)]
pub struct SubagentLanes {
    /// Depth 1 comes first.
    lanes: Vec<Arc<Semaphore>>,
    width: usize,
}

impl SubagentLanes {
    /// Makes the slots according to the settings.
    pub fn new(config: &SubagentsConfig) -> Self {
        let width = config.max_concurrent;
        Self { lanes: (0..config.max_depth).map(|_| Arc::new(Semaphore::new(width))).collect(), width }
    }

    /// Waits for a slot at this depth, at least 1. The wait does not count as active time of the subagent.
    ///
    /// # Errors
    /// Text for the model: no slot became free within `at_most`, or the call was cancelled.
    ///
    /// # Cancel safety
    /// No slot is taken before it returns.
    pub async fn enter(
        &self,
        depth: u32,
        live: &LiveRun,
        cancel: &CancellationToken,
        at_most: Duration,
    ) -> Result<Option<OwnedSemaphorePermit>, String> {
        let at = usize::try_from(depth).unwrap_or(usize::MAX).saturating_sub(1);
        // The limits of the run tree do not permit a greater depth, so there is no slot to wait for.
        let Some(lane) = self.lanes.get(at) else { return Ok(None) };
        let until = Instant::now() + at_most;
        let place = lane.clone().acquire_owned();
        tokio::pin!(place);
        loop {
            tokio::select! {
                biased; // a stop comes before a free slot
                () = cancel.cancelled() => return Err("cancelled: it was stopped before it started".into()),
                place = &mut place => return Ok(place.ok()), // the semaphore is never closed
                () = sleep_until(until) => return Err(format!(
                    "not started: {} subagents were running for {} s, the most at a time; do this part \
                     yourself, or try again later",
                    self.width,
                    at_most.as_secs()
                )),
                () = sleep(SIGN_OF_LIFE) => live.activity.touch(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::{RunId, StopReason, Work};

    use super::*;
    use belay_run::live::{RunOrigin, StopCause};

    const MINUTE: Duration = Duration::from_secs(60);

    fn lanes(max_concurrent: usize) -> SubagentLanes {
        SubagentLanes::new(&SubagentsConfig { max_concurrent, ..SubagentsConfig::default() })
    }

    fn run() -> Arc<LiveRun> {
        let origin = RunOrigin { work: Work::Chat, source: None, channel: "test".into(), principal: "alice".into() };
        LiveRun::new(RunId::new(), "alice".into(), origin, false)
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_depth_holds_up_no_other_depth() {
        let (lanes, live) = (lanes(1), run());
        let _held = lanes.enter(1, &live, &live.control.cancel, MINUTE).await.expect("a place");
        let _below =
            lanes.enter(2, &live, &live.control.cancel, MINUTE).await.expect("what is started within has its own");
        let refused = lanes.enter(1, &live, &live.control.cancel, MINUTE).await.expect_err("no place");
        assert!(refused.contains("1 subagents were running"), "{refused}");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_is_not_silent_obeys_a_stop_and_gets_the_next_place() {
        let (lanes, live) = (lanes(1), run());
        let held = lanes.enter(1, &live, &live.control.cancel, MINUTE).await.expect("a place");
        live.activity.begin();
        let (waited, ()) = tokio::join!(lanes.enter(1, &live, &live.control.cancel, MINUTE), async {
            sleep(Duration::from_secs(45)).await;
            assert!(live.silent_for().is_some_and(|silence| silence <= SIGN_OF_LIFE));
            drop(held);
        });
        let _held = waited.expect("the place was given on");
        let (stopped, ()) = tokio::join!(lanes.enter(1, &live, &live.control.cancel, MINUTE), async {
            sleep(Duration::from_secs(5)).await;
            live.control.stop(StopCause::of(StopReason::UserStop));
        });
        assert!(stopped.is_err());
    }
}
