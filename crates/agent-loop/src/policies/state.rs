//! The engine's state: measures, strikes and the latch. Stored with the run.

use std::collections::BTreeSet;

use belay_protocol::Finding;
use serde::{Deserialize, Serialize};

use super::measures::Measures;
use super::observation::Observation;
use super::rules::{Rule, StopRules, Then};

/// What the engine remembers of a run. Given back with the same rules, or with changed ones, it counts on.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(default)]
pub struct StopState {
    /// What is measured.
    pub measures: Measures,
    /// Strikes in this request, of any kind.
    pub strikes: u32,
    /// Loop detection is off for this run.
    pub detection_off: bool,
    /// The verdict that stands; nothing else is judged until a recovery opens the latch.
    pub latched: Option<Finding>,
    /// Rules whose notice was given and whose condition has been true since.
    noticed: BTreeSet<String>,
}

/// What the engine says.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What follows.
    pub action: Action,
    /// What was seen.
    pub finding: Finding,
    /// Which strike this is, from 1; 0 for a notice.
    pub strike: u32,
    /// What the model is told, where the rule has words of its own.
    pub say: Option<String>,
}

/// What follows from a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Tell the model and go on.
    Notice,
    /// Tell the model, grant a recovery turn ([`StopState::recover`]) and go on.
    Recover,
    /// End the run.
    Stop,
}

impl StopState {
    /// Takes what was seen and says what follows, at the moment a rule turns true.
    pub fn observe(&mut self, rules: &StopRules, seen: Observation<'_>) -> Option<Verdict> {
        match seen {
            Observation::Reset => {
                *self = Self { detection_off: self.detection_off, ..Self::default() };
                return None;
            }
            Observation::Recover => {
                self.recover();
                return None;
            }
            Observation::Disable => {
                self.detection_off = true;
                self.latched = None;
                return None;
            }
            _ => self.measures.observe(rules, &seen),
        }
        if self.latched.is_some() {
            return None;
        }
        self.judge(rules)
    }

    /// Opens the latch; the layer that fired forgets what it saw, so that only new repetition is a second strike.
    pub fn recover(&mut self) {
        if self.latched.take().is_some() {
            self.measures.tool_loops.clear();
            self.measures.chanting.clear();
        }
    }

    /// Asks every rule.
    fn judge(&mut self, rules: &StopRules) -> Option<Verdict> {
        let mut fired: Option<(&Rule, Finding)> = None;
        for rule in &rules.rules {
            if rule.then == Then::Strike && self.detection_off {
                continue;
            }
            let Some(finding) = rule.when.holds(&self.measures) else {
                self.noticed.remove(&rule.name);
                continue;
            };
            if rule.then == Then::Notice && !self.noticed.insert(rule.name.clone()) {
                continue;
            }
            let first = fired.as_ref().is_none_or(|(other, seen)| {
                (other.then == Then::Notice && rule.then != Then::Notice)
                    || finding.reason.precedence(seen.reason).is_lt()
            });
            if first {
                fired = Some((rule, finding));
            }
        }
        let (rule, finding) = fired?;
        Some(self.verdict(rules, rule, finding))
    }

    fn verdict(&mut self, rules: &StopRules, rule: &Rule, finding: Finding) -> Verdict {
        let say = rule.say.clone();
        if rule.then == Then::Notice {
            return Verdict { action: Action::Notice, finding, strike: 0, say };
        }
        self.strikes += 1;
        let action = match rule.then {
            Then::Strike if self.strikes < rules.max_strikes => Action::Recover,
            _ => Action::Stop,
        };
        self.latched = Some(finding.clone());
        Verdict { action, finding, strike: self.strikes, say }
    }
}
