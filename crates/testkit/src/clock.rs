//! A clock that tests move by hand, and the processor time of a test.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use belay_protocol::{Clock, UnixMillis};

/// A clock with the date that a test has set. Share it in an `Arc`.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock with this date.
    pub fn at(date: UnixMillis) -> Self {
        Self(AtomicI64::new(date.0))
    }

    /// Moves the date forward, in whole milliseconds.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// Sets the date, forward or back.
    pub fn set(&self, date: UnixMillis) {
        self.0.store(date.0, Ordering::SeqCst);
    }
}

/// Processor time of this thread so far. Programs beside the test do not add to it, as they do to wall-clock time.
///
/// # Panics
///
/// Where the kernel does not count it: Linux, proc_pid_schedstat(5).
pub fn processor_time() -> Duration {
    let counts = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts processor time");
    let ns = counts.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds come first");
    Duration::from_nanos(ns)
}

impl Clock for ManualClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_what_the_test_says() {
        let clock = ManualClock::at(UnixMillis(1_000));
        clock.advance(Duration::from_secs(2));
        assert_eq!(clock.now(), UnixMillis(3_000));
        clock.set(UnixMillis(5));
        assert_eq!(clock.now(), UnixMillis(5));
    }

    #[test]
    fn processor_time_grows_with_work() {
        let before = processor_time();
        while processor_time() == before {
            std::hint::black_box((0..10_000u64).sum::<u64>());
        }
    }
}
