//! IronClaw v1: the shared loop of chat, job and container runs.
//!
//! Source: nearai/ironclaw, v1 `agentic_loop.rs`. Restated: the tracker of duplicate failures (the same ordered batch
//! of names and canonical arguments, every call failed, consecutively; at 5 the tools are taken away) and the limit of
//! 50 iterations. Its warnings at 3 end nothing and do not count.
//!
//! Not in a recording: calls that the length limit cut off (at 3 the tools are taken away), the rate limit, and the
//! empty completions of jobs. Nudges for announced tools never end a run. A batch without recorded results is unknown
//! and counts as a success.

use belay_trajectory::{RuleSet, TrajectoryEvent};

use super::steps::{Call, Step, Steps};

/// Equal failed batches in a row from which the tools are taken away.
const DUPLICATES: u32 = 5;

/// Most iterations of a run.
const ITERATIONS: u64 = 50;

/// IronClaw's guardrails.
#[derive(Debug, Default)]
pub(crate) struct IronClaw {
    steps: Steps,
    last: Vec<(String, String)>,
    count: u32,
}

impl IronClaw {
    fn record(&mut self, step: &Step) {
        if step.calls.is_empty() || !step.calls.iter().all(failed) {
            (self.last, self.count) = (Vec::new(), 0);
            return;
        }
        let batch: Vec<_> = step.calls.iter().map(|call| (call.name.clone(), call.arguments.clone())).collect();
        self.count = if batch == self.last { self.count + 1 } else { 1 };
        self.last = batch;
    }
}

fn failed(call: &Call) -> bool {
    call.result.as_ref().is_some_and(|(outcome, _)| outcome.is_failure())
}

impl RuleSet for IronClaw {
    fn observe(&mut self, event: &TrajectoryEvent) -> Option<String> {
        if matches!(event, TrajectoryEvent::Reset) {
            (self.last, self.count) = (Vec::new(), 0);
        }
        if let Some(step) = self.steps.observe(event) {
            self.record(&step);
            if self.count >= DUPLICATES {
                return Some("duplicate_failures".into());
            }
        }
        (self.steps.begun() > ITERATIONS).then(|| "iterations".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, fired};
    use super::*;

    #[test]
    fn five_equal_failed_batches_take_the_tools_away() {
        let rule = Some("duplicate_failures");
        for (text, times, expected) in [
            (". f(x) f!no", 5, None), // the sixth model call is the first without tools
            (". f(x) f!no", 6, rule),
            (". f(x) g(y) f!no g!no", 6, rule),
            (". f(x) g(y) f!no g=yes", 20, None),  // one call of the batch succeeded
            (". f(x) f!no . f(y) f!no", 20, None), // alternation is not detected
            (". f(x) f!no . :hm", 20, None),       // a text resets
            (". f(x) f=same", 50, None),           // successes are never duplicates
            (". f(x) f=same", 51, Some("iterations")),
            ("f(x)", 20, None),
        ] {
            check::<IronClaw>(text, times, expected);
        }
    }

    #[test]
    fn the_order_of_keys_does_not_hide_a_duplicate() {
        let call = |args| TrajectoryEvent::tool("f", args);
        let failed = || TrajectoryEvent::result("f", false, "no");
        let mut recording = Vec::new();
        for round in 0..6 {
            let args = if round % 2 == 0 { r#"{"a":1,"b":2}"# } else { r#"{"b":2,"a":1}"# };
            recording.extend([TrajectoryEvent::Turn, call(args), failed()]);
        }
        assert_eq!(fired(IronClaw::default(), &recording).map(|(at, _)| at), Some(15));
    }
}
