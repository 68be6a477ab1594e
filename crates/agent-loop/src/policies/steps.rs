//! Steps: model calls begun in this request.

use serde::{Deserialize, Serialize};

use super::observation::Observation;

/// Counts steps.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
#[serde(transparent)]
pub struct Steps(u64);

impl Steps {
    /// Takes what was seen.
    pub fn observe(&mut self, seen: &Observation<'_>) {
        if matches!(seen, Observation::Step) {
            self.0 = self.0.saturating_add(1);
        }
    }

    /// Steps so far.
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
    fn a_step_is_a_model_call_that_begins_and_nothing_else() {
        let mut steps = Steps::default();
        for (seen, count) in [
            (Observation::Step, 1),
            (Observation::Assistant { text: "hello", nudged: false }, 1),
            (Observation::Other, 1),
            (Observation::Step, 2),
        ] {
            steps.observe(&seen);
            assert_eq!(steps.count(), count, "{seen:?}");
        }
        steps.clear();
        assert_eq!(steps, Steps::default());
    }
}
