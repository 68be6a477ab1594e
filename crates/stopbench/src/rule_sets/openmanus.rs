//! OpenManus: equal texts, and a limit of steps.
//!
//! Source: FoundationAgents/OpenManus, `app/agent/base.py`, history up to January 2026. After each step, the agent is
//! stuck if the newest message is an assistant text that equals at least 2 earlier ones anywhere in its memory of 100
//! messages. After a step with calls the newest message is a result, so only steps without calls can be stuck. Being
//! stuck changes the prompt and ends nothing, but it counts as a stop here.
//!
//! `max_steps` is 10 to 30, depending on the kind of agent. 30 (tool calling), the most generous, is used here. A run
//! that finishes on the last permitted step, which OpenManus reports as the limit, does not count as stopped. Not in a
//! recording: the token limit.

use std::collections::VecDeque;

use belay_trajectory::{RuleSet, TrajectoryEvent};

use super::steps::{Step, Steps};

/// Earlier equal texts with which the agent is stuck.
const DUPLICATES: usize = 2;

/// Most steps of a run: `ToolCallAgent.max_steps`.
const MAX_STEPS: u64 = 30;

/// Messages that the memory keeps.
const MEMORY: usize = 100;

/// OpenManus' check for being stuck.
#[derive(Debug, Default)]
pub(crate) struct OpenManus {
    steps: Steps,
    /// Assistant texts; `None` for any other message.
    memory: VecDeque<Option<String>>,
}

impl OpenManus {
    fn remember(&mut self, message: Option<String>) {
        self.memory.push_back(message);
        if self.memory.len() > MEMORY {
            self.memory.pop_front();
        }
    }

    fn is_stuck_after(&mut self, step: Step) -> bool {
        self.remember(None); // the prompt of the step is a message of its own
        let text_only = step.calls.is_empty() && !step.text.is_empty();
        let equal = self.memory.iter().flatten().filter(|earlier| **earlier == step.text).count();
        self.remember(Some(step.text).filter(|text| !text.is_empty()));
        for _ in &step.calls {
            self.remember(None);
        }
        text_only && equal >= DUPLICATES
    }
}

impl RuleSet for OpenManus {
    fn observe(&mut self, event: &TrajectoryEvent) -> Option<String> {
        let ended = self.steps.observe(event);
        match event {
            TrajectoryEvent::Reset => self.memory.clear(),
            TrajectoryEvent::User(_) => self.remember(None),
            _ => {}
        }
        if ended.is_some_and(|step| self.is_stuck_after(step)) {
            return Some("duplicates".into());
        }
        (self.steps.begun() > MAX_STEPS).then(|| "max_steps".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::check;
    use super::*;

    #[test]
    fn the_third_equal_text_is_stuck() {
        let stuck = Some("duplicates");
        for (text, times, expected) in [
            (". :let_me_know", 3, None), // no step has followed the third text yet
            (". :let_me_know", 4, stuck),
            (". :let_me_know . f(x) f=1", 4, stuck), // anywhere, not only adjacent
            (". :let_me_know f(x) f=1", 29, None),   // texts with calls are not examined
            (". ~let_ ~me . f(x) f=1", 4, stuck),
            (". :a . :b", 2, None),
            ("reset . :a", 20, None),
            (". f(x) f=1", 30, None),
            (". f(x) f=1", 31, Some("max_steps")),
        ] {
            check::<OpenManus>(text, times, expected);
        }
    }
}
