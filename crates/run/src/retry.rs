//! Retries inside the agent: growing pauses between attempts, and queries that are repeated until the store answers.
//!
//! Each pause is twice as long as the one before. There is no jitter, because nobody else waits for the same store at
//! the same moment. Retries over a network have jitter and a budget, and belong to the crates that send the requests.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use belay_protocol::StoreError;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The pauses between attempts to use the store, or a busy lane.
pub const STORE: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// Exponential back-off: pauses that double.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// The first pause.
    pub first: Duration,
    /// The longest pause. The pauses stop growing there.
    pub longest: Duration,
}

impl Backoff {
    /// A back-off with these first and longest pauses.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The pauses, one after the other, without an end.
    pub fn pauses(self) -> Pauses {
        let growing = ExponentialBuilder::new().with_min_delay(self.first).with_max_delay(self.longest);
        Pauses { growing: growing.without_max_times().build(), longest: self.longest }
    }

    /// The pause that follows after `pauses` earlier ones; 0: the first pause.
    pub fn after(self, pauses: u32) -> Duration {
        self.pauses().growing.nth(pauses as usize).unwrap_or(self.longest)
    }
}

/// The pauses of one task.
#[derive(Debug)]
pub struct Pauses {
    growing: ExponentialBackoff,
    longest: Duration,
}

impl Pauses {
    /// The next pause, for a caller that waits itself.
    pub fn next_pause(&mut self) -> Duration {
        self.growing.next().unwrap_or(self.longest)
    }

    /// Waits for the next pause, or until `stop`.
    ///
    /// # Cancel safety
    /// If the future is dropped midway, the pause counts as over.
    pub async fn wait(&mut self, stop: &CancellationToken) {
        let _ended_before = stop.run_until_cancelled(sleep(self.next_pause())).await; // the caller checks the token
    }
}

/// Repeats a query until the store answers. Returns `None` if the daemon shuts down first.
///
/// # Cancel safety
/// Same as the query, which may have run several times.
pub async fn until_stored<T, F>(stop: &CancellationToken, mut ask: impl FnMut() -> F) -> Option<T>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut pauses = STORE.pauses();
    loop {
        match ask().await {
            Ok(answer) => return Some(answer),
            Err(error) if stop.is_cancelled() => {
                tracing::warn!(%error, "the store does not answer; this is left to the next start");
                return None;
            }
            Err(error) => tracing::error!(%error, "the store does not answer; trying again"),
        }
        pauses.wait(stop).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut pauses = STORE.pauses();
        let shown: Vec<_> = (0..8).map(|_| pauses.next_pause().as_millis()).collect();
        assert_eq!(shown, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        let after: Vec<_> = [0, 1, 6, 100].iter().map(|n| STORE.after(*n).as_millis()).collect();
        assert_eq!(after, [100, 200, 5000, 5000]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_store_is_asked_until_it_answers_or_the_daemon_ends() {
        let (stop, mut asked, begun) = (CancellationToken::new(), 0, Instant::now());
        let answer = until_stored(&stop, || {
            asked += 1;
            std::future::ready(if asked == 4 { Ok(asked) } else { Err(StoreError::Unavailable("away".into())) })
        });
        let tenths = || begun.elapsed().as_millis() / 100;
        assert_eq!((answer.await, tenths()), (Some(4), 7));
        let never = || std::future::ready(Err::<(), _>(StoreError::Unavailable("away".into())));
        let (answer, ()) = tokio::join!(until_stored(&stop, never), async {
            sleep(Duration::from_secs(2)).await;
            stop.cancel();
        });
        assert_eq!((answer, tenths()), (None, 27));
    }
}
