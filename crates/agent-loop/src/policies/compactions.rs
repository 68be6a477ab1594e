//! Compactions that win nothing.

use serde::{Deserialize, Serialize};

use super::observation::Observation;

/// Counts compactions in a row that won less than a tenth of the context.
///
/// A tenth: shortening costs a model call over nearly the whole context, and what it won is filled again after a step.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
#[serde(transparent)]
pub struct Compactions(u64);

impl Compactions {
    /// Takes what was seen.
    pub fn observe(&mut self, seen: &Observation<'_>) {
        if let Observation::Compacted { before, after } = *seen {
            let gained = u128::from(after) * 10 <= u128::from(before) * 9;
            self.0 = if gained { 0 } else { self.0.saturating_add(1) };
        }
    }

    /// Such compactions in a row.
    pub fn count(self) -> u64 {
        self.0
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compaction_that_wins_a_tenth_resets_the_count() {
        let table: &[(&[(u64, u64)], u64)] = &[
            (&[(1_000, 950), (950, 900), (900, 899)], 3),
            (&[(1_000, 901)], 1),
            (&[(1_000, 900)], 0),
            (&[(1_000, 950), (1_000, 100), (1_000, 1_200)], 1),
            (&[(0, 0)], 0),
            (&[(u64::MAX, u64::MAX)], 1),
        ];
        for (pairs, count) in table {
            let mut compactions = Compactions::default();
            for &(before, after) in *pairs {
                compactions.observe(&Observation::Compacted { before, after });
                compactions.observe(&Observation::Step);
            }
            assert_eq!(compactions.count(), *count, "{pairs:?}");
        }
    }
}
