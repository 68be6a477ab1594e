//! The last sign of life of a run, for the detection of stuck runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The last sign of life. Times are milliseconds since creation. The fields are independent of each other, so relaxed
/// ordering suffices.
#[derive(Debug)]
pub(crate) struct Pulse {
    made: Instant,
    at_work: AtomicBool,
    /// End of the time in which no sign of life is expected.
    heard_ms: AtomicU64,
    /// Silence at which the next warning is due; 0: the first warning.
    warn_ms: AtomicU64,
}

impl Default for Pulse {
    fn default() -> Self {
        Self {
            made: Instant::now(),
            at_work: AtomicBool::new(false),
            heard_ms: AtomicU64::new(0),
            warn_ms: AtomicU64::new(0),
        }
    }
}

impl Pulse {
    /// Starts the detection: work begins.
    pub(crate) fn begin(&self) {
        self.beat(Duration::ZERO);
        self.at_work.store(true, Ordering::Relaxed);
    }

    /// Stops the detection: work pauses, so silence means nothing.
    pub(crate) fn stop(&self) {
        self.at_work.store(false, Ordering::Relaxed);
    }

    /// Records a sign of life that is valid for `time`. It never shortens the validity of an earlier one.
    pub(crate) fn beat(&self, time: Duration) {
        let until = self.now_ms().saturating_add(millis(time));
        self.heard_ms.fetch_max(until, Ordering::Relaxed);
        if self.warn_ms.load(Ordering::Relaxed) > 0 {
            self.warn_ms.store(0, Ordering::Relaxed);
        }
    }

    /// Records a sign of life with which no more silence is expected.
    pub(crate) fn end_quiet(&self) {
        self.heard_ms.store(self.now_ms(), Ordering::Relaxed);
        self.beat(Duration::ZERO);
    }

    /// Time since the last sign of life; `None` while no work is in progress.
    pub(crate) fn silence(&self) -> Option<Duration> {
        let heard = self.heard_ms.load(Ordering::Relaxed);
        let silence = Duration::from_millis(self.now_ms().saturating_sub(heard));
        self.at_work.load(Ordering::Relaxed).then_some(silence)
    }

    /// Whether a warning is due at this silence: at `first`, and then after each doubling.
    pub(crate) fn warns(&self, silence: Duration, first: Duration) -> bool {
        let (silence, first) = (millis(silence), millis(first).max(1));
        let due = self.warn_ms.load(Ordering::Relaxed).max(first);
        if silence < due {
            return false;
        }
        self.warn_ms.store(silence.saturating_mul(2), Ordering::Relaxed);
        true
    }

    fn now_ms(&self) -> u64 {
        millis(self.made.elapsed())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn silence_is_what_has_passed_at_work_since_the_last_sign_of_life() {
        let pulse = Pulse::default();
        advance(5 * SECOND).await;
        assert_eq!(pulse.silence(), None, "nothing is at work");
        pulse.begin();
        advance(3 * SECOND).await;
        assert_eq!(pulse.silence(), Some(3 * SECOND));
        pulse.beat(10 * SECOND);
        pulse.beat(Duration::ZERO);
        advance(11 * SECOND).await;
        assert_eq!(pulse.silence(), Some(SECOND), "what has a deadline of its own may be silent until then");
        pulse.beat(3600 * SECOND);
        pulse.end_quiet();
        advance(2 * SECOND).await;
        assert_eq!(pulse.silence(), Some(2 * SECOND), "what was to be silent has ended early");
        pulse.stop();
        assert_eq!(pulse.silence(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn warnings_come_at_the_first_limit_and_then_at_each_doubling() {
        let pulse = Pulse::default();
        let at = |s: u32| pulse.warns(s * SECOND, 2 * SECOND);
        assert_eq!([at(1), at(2), at(3), at(4), at(7), at(8)], [false, true, false, true, false, true]);
        pulse.beat(Duration::ZERO);
        assert!(at(2), "after a sign of life it begins anew");
    }
}
