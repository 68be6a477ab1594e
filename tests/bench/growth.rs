//! The rule that tells growth without end from a plateau.

use serde::Serialize;

use crate::figures::median;

/// Growth of a tenth between the thirds is noise: pages come back late, and caches fill.
const TOLERANCE: f64 = 0.1;

/// A quantity in the course of a soak, judged. The unit is that of its samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Growth {
    /// The median of the middle third of the time.
    pub(crate) middle: f64,
    /// The median of the last third.
    pub(crate) last: f64,
    /// The largest `last` that is no growth.
    pub(crate) limit: f64,
    pub(crate) grows: bool,
}

impl Growth {
    /// Judges samples at equal intervals. The first third is the warm-up and does not count. The quantity grows if the
    /// median of the last third is more than a tenth above that of the middle third, and more than `slack` besides.
    pub(crate) fn of(samples: &[f64], slack: f64) -> Self {
        let third = samples.len() / 3;
        let (middle, last) =
            (median(&samples[third..samples.len() - third]), median(&samples[samples.len() - third..]));
        let limit = middle * (1.0 + TOLERANCE) + slack;
        Self { middle, last, limit, grows: last > limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plateau_is_told_from_growth_without_end() {
        let series = |value: fn(f64) -> f64| (0..30).map(|n| value(f64::from(n))).collect::<Vec<_>>();
        for (what, samples, slack, grows) in [
            ("nothing", vec![], 0.0, false),
            ("a constant", series(|_| 100.0), 0.0, false),
            ("a warm-up", series(|n| if n < 10.0 { n } else { 100.0 }), 0.0, false),
            ("a saw", series(|n| 100.0 + 50.0 * (n % 4.0)), 0.0, false),
            ("one peak at the end", series(|n| if n > 28.0 { 900.0 } else { 100.0 }), 0.0, false),
            ("a decrease", series(|n| 100.0 - n), 0.0, false),
            ("a slow rise within the tenth", series(|n| 100.0 + 0.5 * n), 0.0, false),
            ("a rise", series(|n| 100.0 + 5.0 * n), 0.0, true),
            ("a rise within the slack", series(|n| 10.0 + 0.3 * n), 4.0, false),
            ("a rise from little past the slack", series(|n| 10.0 + n), 4.0, true),
        ] {
            assert_eq!(Growth::of(&samples, slack).grows, grows, "{what}: {:?}", Growth::of(&samples, slack));
        }
    }
}
