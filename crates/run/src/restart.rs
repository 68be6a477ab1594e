//! The supervisor of background tasks: work that panics, or ends unexpectedly, is restarted with exponential back-off.
//!
//! Each supervised task has a name. A restart is logged and counted (`belay_task_restarts_total`) under that name. The
//! first restart comes at once. The pauses then grow from 1 s to 60 s, until the work has lasted 120 s.
//!
//! - [`supervise`]: work that never ends on its own: delivery, the scheduler of routines, the registry of jobs.
//! - [`persist`]: work that has an end: one reply, one delivery's settlement, the processes of one run.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::metrics;
use crate::retry::{Backoff, Pauses};

/// The pauses after the first restart, which comes at once.
const PAUSES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// Time that the work must run before the next restart comes at once again.
const LASTING: Duration = Duration::from_secs(120);

/// Exponential back-off for the restarts of one task.
#[derive(Debug, Default)]
pub struct Restarts {
    /// The next pauses, and the time from which the work has run long enough to reset them.
    last: Option<(Pauses, Instant)>,
}

impl Restarts {
    /// The pause before the next restart of work that has just ended.
    fn pause(&mut self) -> Duration {
        let now = Instant::now();
        let (pauses, pause) = match self.last.take() {
            Some((mut pauses, lasting)) if now < lasting => {
                let pause = pauses.next_pause();
                (pauses, pause)
            }
            _ => (PAUSES.pauses(), Duration::ZERO),
        };
        self.last = Some((pauses, now + pause + LASTING));
        pause
    }

    /// Logs and counts the unexpected end of a task, and waits before its restart. Returns `false` if the daemon shuts
    /// down first.
    ///
    /// # Cancel safety
    /// If the future is dropped midway, the pause counts as over.
    pub async fn back_off(&mut self, task: &'static str, stop: &CancellationToken) -> bool {
        if stop.is_cancelled() {
            return false;
        }
        let pause = self.pause();
        metrics::task_restarted(task);
        tracing::error!(
            task,
            pause_ms = pause.as_millis() as u64,
            "a background task ended unexpectedly and is restarted"
        );
        stop.run_until_cancelled(sleep(pause)).await.is_some()
    }
}

/// Runs work without an end of its own, and restarts it whenever it panics or returns, until the daemon shuts down.
/// Work that returns after `stop` has ended as expected.
///
/// # Cancel safety
/// Same as the work.
pub async fn supervise<F: Future<Output = ()>>(task: &'static str, stop: CancellationToken, work: impl Fn() -> F) {
    let mut restarts = Restarts::default();
    loop {
        let _ended = caught(&work).await; // restarted whether it panicked or returned
        if !restarts.back_off(task, &stop).await {
            return;
        }
    }
}

/// Runs work to its end, and restarts it whenever it panics. `None`: the daemon shuts down first. Work that begins
/// after `stop` gets one attempt.
///
/// # Cancel safety
/// Same as the work.
pub async fn persist<T, F: Future<Output = T>>(
    task: &'static str,
    stop: &CancellationToken,
    work: impl Fn() -> F,
) -> Option<T> {
    let mut restarts = Restarts::default();
    loop {
        match caught(&work).await {
            Some(output) => return Some(output),
            None if restarts.back_off(task, stop).await => {}
            None => return None,
        }
    }
}

/// Returns the output of the work; `None`: it panicked, and the panic hook has logged the message.
pub async fn caught<T, F: Future<Output = T>>(work: impl FnOnce() -> F) -> Option<T> {
    // The work shares only locks and stores, which stay consistent after a panic; its own values are dropped.
    AssertUnwindSafe(async { work().await }).catch_unwind().await.ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_panics_again_and_again_is_restarted_after_longer_pauses_and_what_has_lasted_at_once() {
        let (began, starts) = (Instant::now(), Mutex::new(Vec::new()));
        let work = || async {
            let count = {
                let mut starts = starts.lock().expect("no test panics with it");
                starts.push(began.elapsed().as_secs());
                starts.len()
            };
            match count {
                1..=8 => panic!("a fault"),
                9 => sleep(LASTING + PAUSES.longest).await, // it works, and then returns
                10 => panic!("a fault"),
                _ => std::future::pending().await,
            }
        };
        let stop = CancellationToken::new();
        let supervised = supervise("test", stop.clone(), work);
        let _still_at_work = tokio::time::timeout(Duration::from_secs(1_000), supervised).await;
        let starts = starts.lock().expect("no test panics with it").clone();
        assert_eq!(starts, [0, 0, 1, 3, 7, 15, 31, 63, 123, 303, 304]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_ends_with_the_daemon_and_nothing_begins() {
        let (stop, begun) = (CancellationToken::new(), AtomicU32::new(0));
        let work = || async {
            if begun.fetch_add(1, Ordering::Relaxed) == 2 {
                stop.cancel();
            }
            panic!("a fault")
        };
        assert_eq!(persist::<(), _>("test", &stop, work).await, None);
        assert_eq!(begun.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn work_with_an_end_is_repeated_until_it_has_ended_once() {
        let begun = AtomicU32::new(0);
        let work = || async {
            let attempt = begun.fetch_add(1, Ordering::Relaxed);
            assert!(attempt >= 3, "a fault");
            attempt
        };
        assert_eq!(persist("test", &CancellationToken::new(), work).await, Some(3));
    }
}
