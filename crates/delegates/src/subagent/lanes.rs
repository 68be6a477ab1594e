//! Places for subagents, over all sessions: a lane for each depth, so that one which waits for those that it has started
//! never holds what they need.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::container::WorkersParts;
use belay_run::config::SubagentsConfig;
use belay_run::live::LiveRun;

/// How often a run that waits for a place shows that it is alive. Well below the silence that anybody watches for.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// What starts runs below other runs, over all sessions.
pub struct ChildServices {
    /// Places for subagents.
    pub lanes: SubagentLanes,
    /// What workers are started with; `None`: there are none.
    pub workers: Option<WorkersParts>,
}

impl ChildServices {
    /// Where there are no workers.
    #[cfg(test)]
    pub(crate) fn without_workers(config: &SubagentsConfig) -> Self {
        Self { lanes: SubagentLanes::new(config), workers: None }
    }
}

/// The lanes of all depths.
#[derive(Debug)]
pub struct SubagentLanes {
    /// The lane of depth 1 first.
    lanes: Vec<Arc<Semaphore>>,
    width: usize,
}

impl SubagentLanes {
    /// Free slots, as the settings say.
    pub fn new(config: &SubagentsConfig) -> Self {
        let width = config.max_concurrent;
        Self { lanes: (0..config.max_depth).map(|_| Arc::new(Semaphore::new(width))).collect(), width }
    }

    /// Waits for a place at this depth, at least 1. What is waited here is no time at work of the subagent.
    ///
    /// # Errors
    /// Words for the model: none was free for so long, or it was told to stop.
    ///
    /// # Cancel safety
    /// Nothing is taken until it returns.
    pub async fn enter(
        &self,
        depth: u32,
        live: &LiveRun,
        cancel: &CancellationToken,
        at_most: Duration,
    ) -> Result<Option<OwnedSemaphorePermit>, String> {
        let at = usize::try_from(depth).unwrap_or(usize::MAX).saturating_sub(1);
        // Deeper than the deepest, which the caps of the tree do not allow, there is nothing to wait for.
        let Some(lane) = self.lanes.get(at) else { return Ok(None) };
        let until = Instant::now() + at_most;
        let place = lane.clone().acquire_owned();
        tokio::pin!(place);
        loop {
            tokio::select! {
                biased; // a stop before a place
                () = cancel.cancelled() => return Err("cancelled: it was stopped before it started".into()),
                place = &mut place => return Ok(place.ok()), // the lane is never closed
                () = sleep_until(until) => return Err(format!(
                    "not started: {} subagents were running for {} s (agent.subagents.max_concurrent); do this part \
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
        let origin = RunOrigin { work: Work::Chat, channel: "test".into(), principal: "alice".into() };
        LiveRun::new(RunId::new(), "alice".into(), origin, false)
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_depth_holds_up_no_other_depth() {
        let (lanes, live) = (lanes(1), run());
        let _held = lanes.enter(1, &live, &live.control.cancel, MINUTE).await.expect("a place");
        let _below =
            lanes.enter(2, &live, &live.control.cancel, MINUTE).await.expect("what is started within has its own");
        let refused = lanes.enter(1, &live, &live.control.cancel, MINUTE).await.expect_err("no place");
        assert!(refused.contains("agent.subagents.max_concurrent"), "{refused}");
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
