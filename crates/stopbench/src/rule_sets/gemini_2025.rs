//! Gemini CLI in September 2025.
//!
//! Source: google-gemini/gemini-cli, the loop detection service. Restated: five identical calls in a row, compared as
//! JSON whose keys keep their original order, so that the order counts; and chanting (see the file `chanting.rs` for
//! its defects) with an average spacing of at most 75 and a history of 1000.
//!
//! Not in a recording: the model that judges from turn 30 on. The limits of the main loop concern continuations, not
//! tool turns, and are left out.

use belay_trajectory::{RuleSet, TrajectoryEvent};

use super::chanting::{Chanting, Deltas, Limits};

/// Identical calls in a row that are a loop.
const REPEATS: u32 = 5;

/// Its limits for text. 75 is one and a half windows.
const LIMITS: Limits = Limits { spacing: 75, periods: None, history: 1000 };

/// Gemini CLI's loop detection of 2025.
#[derive(Debug)]
pub(crate) struct Gemini2025 {
    last: Option<String>,
    count: u32,
    chanting: Chanting,
    deltas: Deltas,
    disabled: bool,
}

impl Default for Gemini2025 {
    fn default() -> Self {
        let chanting = Chanting::new(LIMITS);
        Self { last: None, count: 0, chanting, deltas: Deltas::default(), disabled: false }
    }
}

impl RuleSet for Gemini2025 {
    fn observe(&mut self, event: &TrajectoryEvent) -> Option<String> {
        let delta = self.deltas.of(event);
        match event {
            TrajectoryEvent::Disable => self.disabled = true,
            _ if self.disabled => {}
            TrajectoryEvent::Reset => {
                (self.last, self.count) = (None, 0);
                self.chanting.clear(); // but not the flag of code blocks
            }
            TrajectoryEvent::Tool { name, args, .. } => {
                self.chanting.clear();
                let key = format!("{name}:{}", args.written());
                self.count = if self.last.as_ref() == Some(&key) { self.count + 1 } else { 1 };
                self.last = Some(key);
                return (self.count >= REPEATS).then(|| "CONSECUTIVE_IDENTICAL_TOOL_CALLS".to_owned());
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
    fn five_identical_calls_in_a_row_are_a_loop() {
        let rule = Some("CONSECUTIVE_IDENTICAL_TOOL_CALLS");
        for (text, times, expected) in [
            (". f(x) f=1", 4, None),
            (". f(x) f=1", 5, rule),
            ("f(x) ?hm :and f=1 @go", 5, rule), // nothing in between resets, and results do not count
            ("f(x) g(x)", 20, None),            // alternation is not detected
            ("reset f(x)", 20, None),
        ] {
            check::<Gemini2025>(text, times, expected);
        }
    }

    #[test]
    fn the_order_of_keys_hides_a_loop() {
        let call = |n: usize| TrajectoryEvent::tool("f", [r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#][n % 2]);
        assert_eq!(fired(Gemini2025::default(), &(0..40).map(call).collect::<Vec<_>>()), None);
        assert!(fired(Gemini2025::default(), &(0..5).map(|n| call(n * 2)).collect::<Vec<_>>()).is_some());
    }

    #[test]
    fn a_period_of_up_to_75_characters_chants_at_nine_periods_and_a_window() {
        for (period, expected) in [(50, Some(500)), (49, Some(491)), (51, Some(509)), (75, Some(725)), (76, None)] {
            let text: String =
                ('a'..='z').cycle().enumerate().take(period).map(|(n, c)| if n == 0 { ' ' } else { c }).collect();
            let heard: Vec<_> = text.repeat(30).chars().map(|c| TrajectoryEvent::Text(c.to_string())).collect();
            let at = fired(Gemini2025::default(), &heard).map(|(at, _)| at + 1);
            assert_eq!(at, expected, "period {period}");
        }
    }
}
