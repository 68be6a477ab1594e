//! Back-off after failed beats. Pure.

use std::time::Duration;

use belay_protocol::UnixMillis;

/// Longest pause.
const LONGEST: Duration = Duration::from_secs(86_400);

/// The newest of several failures in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    /// The number of failures in a row, at least 1.
    pub(super) in_a_row: u32,
    /// The time for which the beat was scheduled.
    pub(super) at: UnixMillis,
    /// Whether the provider rejected the API key. That rarely changes within an hour.
    pub(super) key_refused: bool,
}

/// The end of the back-off after this failure. The pause is the interval after the first failure and doubles with each
/// further one, up to a day. A rejected key leads to a pause of a day at once. `None`: the heartbeat beats at a time
/// of day, which is rare enough.
pub(super) fn until(interval: Option<Duration>, failed: Failed) -> Option<UnixMillis> {
    let interval = interval?;
    let pause = if failed.key_refused {
        LONGEST
    } else {
        let doubled = 1_u32.checked_shl(failed.in_a_row.saturating_sub(1)).unwrap_or(u32::MAX);
        interval.saturating_mul(doubled).min(LONGEST)
    };
    Some(UnixMillis(failed.at.0.saturating_add(i64::try_from(pause.as_millis()).unwrap_or(i64::MAX))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_the_interval_to_a_day_and_a_refused_key_waits_a_day() {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        let pause = |interval, in_a_row, key_refused| {
            let failed = Failed { in_a_row, at: UnixMillis(1000), key_refused };
            until(interval, failed).map(|until| u64::try_from(until.0 - 1000).expect("later") / 60_000)
        };
        for (in_a_row, expected) in [
            (1, 30),
            (2, 60),
            (3, 120),
            (4, 240),
            (5, 480),
            (6, 960),
            (7, 1440),
            (8, 1440),
            (33, 1440),
            (u32::MAX, 1440),
        ] {
            assert_eq!(pause(Some(minutes(30)), in_a_row, false), Some(expected), "{in_a_row}");
        }
        assert_eq!(pause(Some(minutes(30)), 1, true), Some(1440));
        assert_eq!(
            pause(Some(minutes(2880)), 3, false),
            Some(1440),
            "shorter than its own interval: it holds nothing back"
        );
        assert_eq!(pause(None, 3, true), None);
    }
}
