//! Gemini CLI in August 2026.
//!
//! Source: google-gemini/gemini-cli, the loop detection service. Restated: cycles of 1 to 5 calls that are repeated 5
//! times, compared as JSON whose keys keep their original order; and chanting (see the file `chanting.rs` for its
//! defects) with an average spacing of at most 250, at most 5 distinct periods, and a history of 5000.
//!
//! The first detection counts. The program itself then grants a recovery turn, which cannot succeed: the next identical
//! call, or the next piece of new text, is the second strike. Not in a recording: the two models that judge from turn
//! 30 on. Subagents have no loop detection.

use std::collections::VecDeque;

use belay_trajectory::{RuleSet, TrajectoryEvent};

use super::chanting::{Chanting, Deltas, Limits};

/// Repetitions of a cycle that are a loop.
const REPEATS: usize = 5;

/// Longest cycle, in calls.
const LONGEST: usize = 5;

/// Its limits for text.
const LIMITS: Limits = Limits { spacing: 250, periods: Some(5), history: 5000 };

/// Gemini CLI's loop detection of 2026.
#[derive(Debug)]
pub(crate) struct Gemini2026 {
    calls: VecDeque<String>,
    chanting: Chanting,
    deltas: Deltas,
    disabled: bool,
}

impl Default for Gemini2026 {
    fn default() -> Self {
        let chanting = Chanting::new(LIMITS);
        Self { calls: VecDeque::new(), chanting, deltas: Deltas::default(), disabled: false }
    }
}

impl Gemini2026 {
    fn is_cycle(&self) -> bool {
        let back = |n: usize| self.calls.len().checked_sub(n + 1).and_then(|at| self.calls.get(at));
        (1..=LONGEST).any(|period| {
            self.calls.len() >= period * REPEATS && (period..period * REPEATS).all(|n| back(n) == back(n % period))
        })
    }
}

impl RuleSet for Gemini2026 {
    fn observe(&mut self, event: &TrajectoryEvent) -> Option<String> {
        let delta = self.deltas.of(event);
        match event {
            TrajectoryEvent::Disable => self.disabled = true,
            _ if self.disabled => {}
            TrajectoryEvent::Reset => {
                self.calls.clear();
                self.chanting.clear(); // but not the flag of code blocks
            }
            TrajectoryEvent::Tool { name, args, .. } => {
                self.chanting.clear();
                self.calls.push_back(format!("{name}:{}", args.written()));
                if self.calls.len() > REPEATS * LONGEST {
                    self.calls.pop_front();
                }
                return self.is_cycle().then(|| "CONSECUTIVE_IDENTICAL_TOOL_CALLS".to_owned());
            }
            _ => {
                let chants = delta.is_some_and(|delta| self.chanting.push(delta));
                return chants.then(|| "CHANTING_IDENTICAL_SENTENCES".to_owned());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, fired};
    use super::*;

    #[test]
    fn cycles_of_up_to_five_calls_are_loops_at_the_fifth_time() {
        let rule = Some("CONSECUTIVE_IDENTICAL_TOOL_CALLS");
        for (text, times, expected) in [
            (". f(x) f=1", 4, None),
            (". f(x) f=1", 5, rule),
            ("f(x) g(x)", 4, None),
            ("f(x) g(x)", 5, rule),
            ("f(1) f(2) f(3) f(4) f(5)", 4, None),
            ("f(1) f(2) f(3) f(4) f(5)", 5, rule),
            ("f(1) f(2) f(3) f(4) f(5) f(6)", 20, None), // longer cycles are not detected
            ("f(x) f(x) f(x) f(x) g(x)", 5, rule),
            ("reset f(x)", 20, None),
        ] {
            check::<Gemini2026>(text, times, expected);
        }
    }

    #[test]
    fn a_counter_or_another_order_of_keys_hides_a_loop() {
        let counted: Vec<_> = (0..60).map(|n| TrajectoryEvent::tool("f", &format!("{{\"a\":1,\"n\":{n}}}"))).collect();
        assert_eq!(fired(Gemini2026::default(), &counted), None);
        // Two orders in alternation are a cycle of two, which needs ten calls instead of five.
        let call = |n: usize| TrajectoryEvent::tool("f", [r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#][n % 2]);
        assert_eq!(fired(Gemini2026::default(), &(0..40).map(call).collect::<Vec<_>>()).map(|(at, _)| at), Some(9));
    }

    #[test]
    fn polling_that_gets_on_is_taken_for_a_loop() {
        check::<Gemini2026>(
            "f(x) f=1 f(x) f=2 f(x) f=3 f(x) f=4 f(x) f=done",
            1,
            Some("CONSECUTIVE_IDENTICAL_TOOL_CALLS"),
        );
    }
}
