//! A clock that tests move by hand.

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
}
