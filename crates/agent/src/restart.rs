//! When a part of the agent that has ended, which it never should, begins again: at once, and then after longer and longer
//! pauses, so that what ends it each time does not take the machine.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// First and longest pause.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How long it has to work for the next end to be a first one again.
const LASTING: Duration = Duration::from_secs(120);

/// The pauses of one part.
#[derive(Debug, Default)]
pub(crate) struct Restarts {
    /// When it ended last, and the pause that followed.
    last: Option<(Instant, Duration)>,
}

impl Restarts {
    /// The pause before it begins again, now that it has ended.
    pub(crate) fn pause(&mut self) -> Duration {
        let now = Instant::now();
        let pause = match self.last {
            Some((ended, pause)) if now.duration_since(ended) < pause + LASTING => {
                if pause.is_zero() {
                    PAUSE.0
                } else {
                    (pause * 2).min(PAUSE.1)
                }
            }
            _ => Duration::ZERO,
        };
        self.last = Some((now, pause));
        pause
    }
}

/// Does the work after the pause; not at all where the end comes first.
pub(crate) async fn after(pause: Duration, stop: CancellationToken, work: impl Future<Output = ()>) {
    tokio::select! {
        biased; // the end first
        () = stop.cancelled() => return,
        () = sleep(pause) => {}
    }
    work.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_ends_again_and_again_begins_after_longer_pauses_and_what_has_lasted_at_once() {
        let mut restarts = Restarts::default();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let pause = restarts.pause();
            pauses.push(pause.as_secs());
            sleep(pause).await;
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        sleep(LASTING).await;
        assert_eq!(restarts.pause(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_ends_with_the_daemon_and_nothing_begins() {
        let stop = CancellationToken::new();
        stop.cancel();
        after(Duration::from_secs(60), stop, async { panic!("it begins") }).await;
    }
}
