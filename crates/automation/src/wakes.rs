//! Wakes a part of automation when other nodes of a cluster have changed its rows.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{Hints, Topic};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Wakes its owner after changes of one topic. A daemon that uses its database alone has no hints, and is never woken.
pub(crate) struct Wakes {
    /// `None`: there are no hints.
    changes: Option<watch::Receiver<u64>>,
    /// The least time between two wake-ups.
    least: Duration,
    /// The time before which there is no wake-up. A change until then is kept.
    next: Instant,
}

impl Wakes {
    /// Wakes after changes from now on.
    pub(crate) fn new(hints: Option<&Arc<dyn Hints>>, topic: Topic, least: Duration) -> Self {
        Self { changes: hints.map(|hints| hints.changes(topic)), least, next: Instant::now() }
    }

    /// Waits for the next wake-up. It never comes without hints, and after the end of the store.
    ///
    /// # Cancel safety
    /// If the future is dropped, the wake-up is kept.
    pub(crate) async fn next(&mut self) {
        let Some(changes) = &mut self.changes else { return pending().await };
        sleep_until(self.next).await; // before the change is read: nothing may be awaited after it
        if changes.changed().await.is_err() {
            return pending().await;
        }
        self.next = Instant::now() + self.least;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    struct One(watch::Sender<u64>);

    impl Hints for One {
        fn changes(&self, _topic: Topic) -> watch::Receiver<u64> {
            self.0.subscribe()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_change_wakes_once_and_not_sooner_than_after_the_least_time() {
        let one = Arc::new(One(watch::Sender::new(0)));
        let hints: Arc<dyn Hints> = one.clone();
        let mut wakes = Wakes::new(Some(&hints), Topic::Jobs, Duration::from_secs(1));
        let begun = Instant::now();
        assert_eq!(wakes.next().now_or_never(), None);
        for change in 1..=3 {
            one.0.send_replace(change);
        }
        wakes.next().await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        one.0.send_replace(4);
        assert_eq!(wakes.next().now_or_never(), None, "the least time is not over, and the change is kept");
        wakes.next().await;
        assert_eq!(begun.elapsed(), Duration::from_secs(1));
        assert_eq!(wakes.next().now_or_never(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_wakes_without_hints_or_after_their_end() {
        assert_eq!(Wakes::new(None, Topic::Jobs, Duration::ZERO).next().now_or_never(), None);
        let one = One(watch::Sender::new(0));
        let changes = Some(one.changes(Topic::Jobs));
        let mut wakes = Wakes { changes, least: Duration::ZERO, next: Instant::now() };
        drop(one);
        assert_eq!(wakes.next().now_or_never(), None);
    }
}
