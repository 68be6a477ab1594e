//! The system clock.

use std::time::{SystemTime, UNIX_EPOCH};

use belay_protocol::{Clock, UnixMillis};

/// The system clock.
#[derive(Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> UnixMillis {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMillis(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX))
    }
}
