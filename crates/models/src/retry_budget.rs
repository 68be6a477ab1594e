//! The time that one logical call may wait between its requests.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// First pause between two requests, before jitter.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(400);

/// Longest sum of our own pauses. 8 s: a person waits this long without asking whether something is wrong.
pub(crate) const PAUSES_SUM_MAX: Duration = Duration::from_secs(8);

/// Longest delay of a provider that is waited for. Beyond it, an immediate error is better for the person.
const PROVIDER_DELAY_MAX: Duration = Duration::from_secs(60);

/// The pauses of one logical call.
pub(crate) struct RetryBudget {
    growing: ExponentialBackoff,
    /// The remaining time for pauses that no provider requested.
    left: Duration,
}

impl RetryBudget {
    /// Makes a full budget.
    pub(crate) fn new() -> Self {
        let growing =
            ExponentialBuilder::default().with_min_delay(FIRST_PAUSE).with_jitter().without_max_times().build();
        Self { growing, left: PAUSES_SUM_MAX }
    }

    /// The pause before the next round, which cannot begin within `delay`; `None`: the pause would be too long.
    /// `asked_for`: the provider requested the delay. `again`: requests were sent before, so a back-off pause is due.
    pub(crate) fn pause(&mut self, delay: Duration, asked_for: bool, again: bool) -> Option<Duration> {
        let pause = if again { self.growing.next()? } else { Duration::ZERO };
        let wait = pause.max(delay);
        if asked_for {
            return (delay <= PROVIDER_DELAY_MAX).then_some(wait);
        }
        self.left = self.left.checked_sub(wait)?;
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn our_own_pauses_grow_and_never_sum_to_more_than_their_bound() {
        for _ in 0..20 {
            let mut budget = RetryBudget::new();
            let pauses: Vec<_> = std::iter::from_fn(|| budget.pause(Duration::ZERO, false, true)).collect();
            assert!(pauses[0] >= FIRST_PAUSE && pauses[0] <= FIRST_PAUSE * 2, "{pauses:?}");
            assert!(pauses.iter().sum::<Duration>() <= PAUSES_SUM_MAX, "{pauses:?}");
        }
    }

    #[test]
    fn a_delay_is_waited_for_as_far_as_the_budget_allows() {
        for (delays, asked_for, last) in [
            (vec![8], false, Some(8)),
            (vec![9], false, None),
            (vec![5, 3], false, Some(3)),
            (vec![5, 4], false, None),
            (vec![60, 60], true, Some(60)),
            (vec![61], true, None),
        ] {
            let mut budget = RetryBudget::new();
            let pauses: Vec<_> = delays.iter().map(|delay| budget.pause(SECOND * *delay, asked_for, false)).collect();
            assert_eq!(pauses.last().copied().flatten(), last.map(|n| SECOND * n), "{delays:?}");
        }
    }
}
