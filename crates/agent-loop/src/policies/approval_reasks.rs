//! Asking again for what was denied.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::digest;
use super::observation::{CallOutcome, Observation};
use super::streak::Streak;

/// Open calls that are remembered; the oldest is forgotten first. 64: four times the calls that run side by side.
const MAX_OPEN: usize = 64;

/// Different denied calls that are remembered. 64: whoever is denied more than that is ended by another rule.
const MAX_DENIED: usize = 64;

/// Counts how often the same call, by name and canonical arguments, was denied.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(default)]
pub struct ApprovalReasks {
    /// Calls without a result, oldest first: digest of the name, digest of the call.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    open: VecDeque<(u64, u64)>,
    /// How often each call was denied.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    denied: BTreeMap<u64, Streak>,
    /// The one that was denied most often.
    #[serde(skip_serializing_if = "Option::is_none")]
    most: Option<u64>,
}

impl ApprovalReasks {
    /// Takes what was seen.
    pub fn observe(&mut self, seen: &Observation<'_>) {
        match seen {
            // What the step before left open never gets a result.
            Observation::Step => self.open.clear(),
            Observation::ToolCall { name, arguments } => {
                if self.open.len() == MAX_OPEN {
                    self.open.pop_front();
                }
                self.open.push_back((digest::of_name(name), digest::of_call(name, arguments)));
            }
            Observation::ToolResult { name, outcome, .. } => {
                let of_name = digest::of_name(name);
                let oldest = self.open.iter().position(|(open, _)| *open == of_name);
                let call = oldest.and_then(|at| self.open.remove(at)).map_or(of_name, |(_, call)| call);
                if *outcome == CallOutcome::Denied {
                    self.deny(call, name);
                }
            }
            _ => {}
        }
    }

    fn deny(&mut self, call: u64, name: &str) {
        if self.denied.len() == MAX_DENIED && !self.denied.contains_key(&call) {
            return;
        }
        let streak = self.denied.entry(call).or_default();
        streak.add(name);
        let count = streak.count();
        if count > self.count() {
            self.most = Some(call);
        }
    }

    fn most(&self) -> Option<&Streak> {
        self.denied.get(&self.most?)
    }

    /// Denials of the call that was denied most often.
    pub fn count(&self) -> u64 {
        self.most().map_or(0, Streak::count)
    }

    /// The tool of that call; empty without one.
    pub fn newest(&self) -> &str {
        self.most().map_or("", Streak::tool)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::Arguments;

    use super::*;

    fn check(events: &[(&str, &str, CallOutcome)], count: u64, tool: &str) {
        let mut reasks = ApprovalReasks::default();
        for (name, raw, outcome) in events {
            reasks.observe(&Observation::Step);
            reasks.observe(&Observation::ToolCall { name, arguments: &Arguments::parse(raw) });
            reasks.observe(&Observation::ToolResult { name, outcome: *outcome, text: "" });
        }
        assert_eq!((reasks.count(), reasks.newest()), (count, tool), "{events:?}");
    }

    #[test]
    fn denials_of_the_same_call_add_up_whatever_comes_between() {
        use CallOutcome::{Denied, Failed, Success};
        let push = ("push", r#"{"to":"main","force":true}"#, Denied);
        let shuffled = ("push", r#"{"force":true,"to":"main"}"#, Denied);
        let elsewhere = ("push", r#"{"to":"dev","force":true}"#, Denied);
        let other = ("mail", r#"{"to":"main","force":true}"#, Denied);
        check(&[push, shuffled, push], 3, "push");
        check(&[push, ("read", "{}", Success), other, push], 2, "push");
        check(&[push, elsewhere, other], 1, "push");
        check(&[("push", "{}", Failed), ("push", "{}", Success)], 0, "");
        check(&[], 0, "");
    }

    #[test]
    fn a_result_belongs_to_the_oldest_open_call_of_its_tool() {
        let arguments = [Arguments::parse(r#"{"n":1}"#), Arguments::parse(r#"{"n":2}"#)];
        let mut reasks = ApprovalReasks::default();
        for denied_at in [0, 1, 0] {
            reasks.observe(&Observation::Step);
            arguments.iter().for_each(|arguments| reasks.observe(&Observation::ToolCall { name: "t", arguments }));
            for at in 0..2 {
                let outcome = if at == denied_at { CallOutcome::Denied } else { CallOutcome::Success };
                reasks.observe(&Observation::ToolResult { name: "t", outcome, text: "" });
            }
        }
        assert_eq!(reasks.count(), 2, "the first call twice, the second once");
    }

    #[test]
    fn the_state_stays_small() {
        let mut reasks = ApprovalReasks::default();
        for n in 0..1_000 {
            let arguments = Arguments::parse(&format!(r#"{{"n":{n}}}"#));
            (0..3).for_each(|_| reasks.observe(&Observation::ToolCall { name: "t", arguments: &arguments }));
            reasks.observe(&Observation::ToolResult { name: "t", outcome: CallOutcome::Denied, text: "" });
        }
        assert!(reasks.open.len() <= MAX_OPEN && reasks.denied.len() <= MAX_DENIED);
        let stored = serde_json::to_string(&reasks).expect("serialises");
        assert!(stored.len() < 8_000, "{} bytes", stored.len());
        assert_eq!(serde_json::from_str::<ApprovalReasks>(&stored).expect("reads back"), reasks);
    }
}
