//! Records which of the texts and tools that rules ask about were mentioned.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::observation::Observation;

/// The texts of rules that the newest answer contains, and the tools of rules that the step has called. It stores these
/// matches, never the answer.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(default)]
pub struct Mentions {
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    said: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    called: BTreeSet<String>,
    /// Whether steps have been observed.
    steps_told: bool,
    /// Whether the newest call or result was a result.
    after_result: bool,
}

/// The texts and tools that rules search for.
#[derive(Clone, Debug, PartialEq, Default)]
pub(crate) struct Wanted {
    /// Texts in an answer.
    pub(crate) texts: Vec<String>,
    /// Tools that a step calls.
    pub(crate) tools: Vec<String>,
}

impl Mentions {
    /// Processes an observation. A blank answer does not replace the newest one. An answer that a guardrail has handled
    /// is ignored.
    pub(crate) fn observe(&mut self, wanted: &Wanted, seen: &Observation<'_>) {
        match seen {
            Observation::Step => {
                self.steps_told = true;
                self.called.clear();
            }
            Observation::Assistant { text, nudged } => {
                self.called.clear();
                if !nudged && !text.trim().is_empty() {
                    self.said.clear();
                    self.said.extend(wanted.texts.iter().filter(|part| text.contains(part.as_str())).cloned());
                }
            }
            Observation::ToolCall { name, .. } => {
                if self.after_result && !self.steps_told {
                    self.called.clear();
                }
                self.after_result = false;
                if wanted.tools.iter().any(|tool| tool == name) && !self.called.contains(*name) {
                    self.called.insert((*name).to_owned());
                }
            }
            Observation::ToolResult { .. } => self.after_result = true,
            _ => {}
        }
    }

    /// Whether the newest answer contains this text. Only for texts that a rule asks about.
    pub fn says(&self, text: &str) -> bool {
        self.said.contains(text)
    }

    /// Whether the step has called this tool. Only for tools that a rule asks about.
    pub fn calls(&self, tool: &str) -> bool {
        self.called.contains(tool)
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::Arguments;

    use super::*;
    use crate::policies::CallOutcome;

    fn check(seen: &[Observation<'_>], says: bool, calls: bool) {
        let wanted = Wanted { texts: vec!["DONE".into()], tools: vec!["push".into()] };
        let mut mentions = Mentions::default();
        seen.iter().for_each(|seen| mentions.observe(&wanted, seen));
        assert_eq!((mentions.says("DONE"), mentions.calls("push")), (says, calls), "{seen:?}");
    }

    #[test]
    fn the_newest_answer_and_the_calls_of_the_step_are_known() {
        use Observation::{Step, Text};
        let none = Arguments::parse("{}");
        let say = |text| Observation::Assistant { text, nudged: false };
        let call = |name| Observation::ToolCall { name, arguments: &none, spec: None };
        let result = Observation::ToolResult { name: "push", outcome: CallOutcome::Success, text: "DONE" };
        check(&[say("All DONE now.")], true, false);
        check(&[say("All done now.")], false, false);
        check(&[Text("DONE"), Step], false, false);
        check(&[result], false, false);
        check(&[say("DONE"), say("Not yet.")], false, false);
        check(&[say("DONE"), say(" "), Step], true, false);
        check(&[Observation::Assistant { text: "DONE", nudged: true }], false, false);
        check(&[call("push")], false, true);
        check(&[call("pull")], false, false);
        check(&[Step, call("push"), result, call("pull")], false, true);
        check(&[call("push"), result, call("pull")], false, false);
        check(&[Step, call("push"), result, Step], false, false);
        check(&[call("push"), result, say("so")], false, false);
    }
}
