//! The only limit of most programs: a number of model calls.

use belay_trajectory::{RuleSet, TrajectoryEvent};

use super::steps::Steps;

/// Most model calls. 50: the default of IronClaw, OpenFang, PicoClaw and Koog; others have 10 to 100.
const CAP: u64 = 50;

/// Ends a request at its 51st model call.
#[derive(Debug, Default)]
pub(crate) struct IterationCap {
    steps: Steps,
}

impl RuleSet for IterationCap {
    fn observe(&mut self, event: &TrajectoryEvent) -> Option<String> {
        self.steps.observe(event);
        (self.steps.begun() > CAP).then(|| "iterations".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::check;
    use super::*;

    #[test]
    fn the_fifty_first_model_call_is_one_too_many() {
        for (text, times, expected) in [
            (". f(x) f=1", 50, None),
            (". f(x) f=1", 51, Some("iterations")),
            ("f(x) f=1", 50, None),
            ("f(x) f=1", 51, Some("iterations")),
            ("reset . f(x) f=1", 200, None),
        ] {
            check::<IterationCap>(text, times, expected);
        }
    }
}
