//! OpenHands: the stuck detector.
//!
//! Source: OpenHands/software-agent-sdk, `stuck_detector.py` at 1c2e6b5. Before each model call it searches the last 20
//! events after the newest message of the person for: the same action with the same observation 4 times; the same
//! action with only errors 3 times; 3 messages of the agent with nothing between them; two actions in alternation, 6
//! actions and 6 observations. The fifth rule, for errors of the context window, returns false (#282 there).
//!
//! Two actions are equal if tool, arguments *and thought* are equal: a reworded thought hides the loop. The thought is
//! the text beside the call; hidden reasoning does not count. Newer versions nudge at 3 errors and stop after more; the
//! older, faster rule is used here. Not in a recording: condensations and security events.

use std::collections::VecDeque;

use belay_trajectory::{RuleSet, TrajectoryEvent};

use super::steps::{Step, Steps};

/// Number of events that are examined.
const WINDOW: usize = 20;
/// Equal actions with equal observations that are a loop.
const REPEATS: usize = 4;
/// Equal actions with errors that are a loop.
const ERRORS: usize = 3;
/// Messages in a row that are a loop.
const MONOLOGUE: usize = 3;
/// Actions of an alternation that are a loop.
const ALTERNATION: usize = 6;

#[derive(Clone, Debug, PartialEq)]
enum Event {
    Action { tool: String, arguments: String, thought: String },
    Observation { tool: String, failed: bool, text: String },
    Message,
}

/// OpenHands' five rules.
#[derive(Debug, Default)]
pub(crate) struct OpenHands {
    steps: Steps,
    window: VecDeque<Event>,
}

impl OpenHands {
    fn take(&mut self, step: Step) {
        if step.calls.is_empty() {
            if !step.text.is_empty() {
                self.window.push_back(Event::Message);
            }
        } else {
            let mut thought = step.text; // the first action of a batch has it
            for call in &step.calls {
                let (tool, arguments) = (call.name.clone(), call.arguments.clone());
                self.window.push_back(Event::Action { tool, arguments, thought: std::mem::take(&mut thought) });
            }
            for call in step.calls {
                let Some((outcome, text)) = call.result else { continue };
                self.window.push_back(Event::Observation { tool: call.name, failed: outcome.is_failure(), text });
            }
        }
        while self.window.len() > WINDOW {
            self.window.pop_front();
        }
    }

    /// The newest actions and observations, `count` of each, newest first.
    fn newest(&self, count: usize) -> Option<(Vec<&Event>, Vec<&Event>)> {
        let of = |wanted: fn(&Event) -> bool| self.window.iter().rev().filter(move |event| wanted(event)).take(count);
        let actions: Vec<_> = of(|event| matches!(event, Event::Action { .. })).collect();
        let observations: Vec<_> = of(|event| matches!(event, Event::Observation { .. })).collect();
        (actions.len() == count && observations.len() == count).then_some((actions, observations))
    }

    fn stuck(&self) -> Option<&'static str> {
        let all_equal = |events: &[&Event]| events.iter().all(|event| *event == events[0]);
        let failed = |event: &&Event| matches!(event, Event::Observation { failed: true, .. });
        if self.newest(REPEATS).is_some_and(|(actions, seen)| all_equal(&actions) && all_equal(&seen)) {
            return Some("repeating_action_observation");
        }
        if self.newest(ERRORS).is_some_and(|(actions, seen)| all_equal(&actions) && seen.iter().all(failed)) {
            return Some("repeating_action_error");
        }
        if self.window.iter().rev().take_while(|event| **event == Event::Message).count() >= MONOLOGUE {
            return Some("monologue");
        }
        let alternate = |events: &[&Event]| events.iter().zip(&events[2..]).all(|(newer, older)| newer == older);
        self.newest(ALTERNATION)
            .is_some_and(|(actions, seen)| alternate(&actions) && alternate(&seen))
            .then_some("alternating_action_observation")
    }
}

impl RuleSet for OpenHands {
    fn observe(&mut self, event: &TrajectoryEvent) -> Option<String> {
        let ended = self.steps.observe(event);
        if matches!(event, TrajectoryEvent::Reset | TrajectoryEvent::User(_)) {
            self.window.clear();
            return None;
        }
        self.take(ended?);
        self.stuck().map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::check;
    use super::*;

    #[test]
    fn each_rule_fires_where_it_is_said_to() {
        let (same, error) = (Some("repeating_action_observation"), Some("repeating_action_error"));
        let (monologue, alternation) = (Some("monologue"), Some("alternating_action_observation"));
        for (text, times, expected) in [
            (". f(x) f=1", 4, None),
            (". f(x) f=1", 5, same),
            (". f(x) f=1 . g(x) g=1 . h(x) h=1", 20, None), // only period 2 is detected
            (". f(x) f!no", 3, None),
            (". f(x) f!no", 4, error),
            (". f(x) f!no . f(x) f!nope", 2, error), // the errors may differ
            (". :hm", 3, None),
            (". :hm", 4, monologue),
            (". :hm @yes", 20, None),
            (". f(x) f=1 . g(x) g=2", 3, None),
            (". f(x) f=1 . g(x) g=2", 4, alternation),
            (". f(x) f=1 @go", 20, None), // each message of the person begins a new window
            ("f(x)", 20, None),           // without results there is no judgement
        ] {
            check::<OpenHands>(text, times, expected);
        }
    }

    #[test]
    fn a_thought_that_is_put_differently_hides_the_loop() {
        check::<OpenHands>(". :again f(x) f=1 . :once_more f(x) f=1 . :and_now f(x) f=1", 10, None);
        check::<OpenHands>(". ?again f(x) f=1 . ?once_more f(x) f=1", 10, Some("repeating_action_observation"));
    }

    #[test]
    fn changing_arguments_with_the_same_result_are_not_seen() {
        let text: String = (0..30).map(|n| format!(". f(x{n}) f=nothing ")).collect();
        check::<OpenHands>(&text, 1, None);
    }
}
