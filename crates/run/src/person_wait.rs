//! The time in which a run, or a run that it has started, waits for a person. It counts for no limit of the run.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

/// The time that was waited for people so far. Waits that overlap count once.
#[derive(Debug, Default)]
pub(crate) struct PersonWait {
    waits: Mutex<Waits>, // held for a few instructions, never across an await
    changed: Notify,
}

#[derive(Debug, Default)]
struct Waits {
    /// Number of waits at this moment.
    open: u32,
    /// When the first of them began.
    since: Option<Instant>,
    /// Time of the waits that are over.
    over: Duration,
}

impl PersonWait {
    /// A wait begins.
    pub(crate) fn begin(&self) {
        let mut waits = self.lock();
        if waits.open == 0 {
            waits.since = Some(Instant::now());
        }
        waits.open += 1;
        drop(waits);
        self.changed.notify_waiters();
    }

    /// A wait ends.
    pub(crate) fn end(&self) {
        let mut waits = self.lock();
        waits.open = waits.open.saturating_sub(1);
        if waits.open == 0 {
            let waited = waits.since.take().map_or(Duration::ZERO, |since| since.elapsed());
            waits.over += waited;
        }
        drop(waits);
        self.changed.notify_waiters();
    }

    /// Waits for the beginning or the end of a wait, from the moment on at which the future is enabled.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// The time that was waited so far, with the wait of this moment.
    pub(crate) fn total(&self) -> Duration {
        let waits = self.lock();
        waits.over + waits.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Whether something waits at this moment.
    pub(crate) fn is_open(&self) -> bool {
        self.lock().open > 0
    }

    fn lock(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn waits_that_overlap_count_once_and_the_present_one_counts_too() {
        let wait = PersonWait::default();
        advance(SECOND).await;
        assert_eq!((wait.total(), wait.is_open()), (Duration::ZERO, false));
        wait.begin();
        advance(SECOND).await;
        wait.begin();
        advance(SECOND).await;
        wait.end();
        advance(SECOND).await;
        assert_eq!((wait.total(), wait.is_open()), (3 * SECOND, true));
        wait.end();
        advance(SECOND).await;
        assert_eq!((wait.total(), wait.is_open()), (3 * SECOND, false));
    }
}
