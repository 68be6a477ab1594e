//! Requests to the model.

use serde::{Deserialize, Serialize};

use super::observation::Observation;

/// Counts requests to the model: each step is one, until totals tell better, which know of repeated requests and children.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
#[serde(default)]
pub struct ModelCalls {
    count: u64,
    /// Totals rule.
    told: bool,
}

impl ModelCalls {
    /// Takes what was seen.
    pub fn observe(&mut self, seen: &Observation<'_>) {
        match seen {
            Observation::Step if !self.told => self.count = self.count.saturating_add(1),
            Observation::Totals(totals) => {
                self.told = true;
                self.count = self.count.max(totals.model_calls);
            }
            _ => {}
        }
    }

    /// Requests so far.
    pub fn count(self) -> u64 {
        self.count
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::Totals;

    #[test]
    fn steps_are_counted_until_totals_rule_and_nothing_runs_backwards() {
        let totals = |model_calls| Totals { model_calls, ..Totals::default() };
        let (two, seven) = (totals(2), totals(7));
        let mut calls = ModelCalls::default();
        for (seen, count) in [
            (Observation::Step, 1),
            (Observation::Other, 1),
            (Observation::Step, 2),
            (Observation::Step, 3),
            (Observation::Totals(&two), 3),
            (Observation::Step, 3),
            (Observation::Totals(&seven), 7),
            (Observation::Totals(&two), 7),
        ] {
            calls.observe(&seen);
            assert_eq!(calls.count(), count, "{seen:?}");
        }
    }
}
