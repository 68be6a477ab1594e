//! Tool calls, all together and for each tool.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::observation::Observation;

/// Tools that are counted by name. 256: twice what the largest tool sets offer; a model that invents names without end
/// does not make the state grow.
pub const MAX_TOOLS: usize = 256;

/// Longest name that is counted by itself, in bytes. 128: twice what providers allow.
pub const MAX_NAME_BYTES: usize = 128;

/// Counts tool calls.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(default)]
pub struct ToolCalls {
    total: u64,
    /// Totals rule over all; each tool is always counted here.
    told: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    of: BTreeMap<String, u64>,
    /// Calls of tools that found no place by name.
    other: u64,
}

impl ToolCalls {
    /// Takes what was seen. Tools in `named`, those that rules ask about, always have a place: invented names cannot
    /// drive them out.
    pub fn observe(&mut self, named: &[String], seen: &Observation<'_>) {
        match seen {
            Observation::ToolCall { name, .. } => {
                if !self.told {
                    self.total = self.total.saturating_add(1);
                }
                self.count_one(named, name);
            }
            Observation::Totals(totals) => {
                self.told = true;
                self.total = self.total.max(totals.tool_calls);
            }
            _ => {}
        }
    }

    fn count_one(&mut self, named: &[String], name: &str) {
        if let Some(count) = self.of.get_mut(name) {
            *count = count.saturating_add(1);
        } else if named.iter().any(|known| known == name) || (self.of.len() < MAX_TOOLS && name.len() <= MAX_NAME_BYTES)
        {
            self.of.insert(name.to_owned(), 1);
        } else {
            self.other = self.other.saturating_add(1);
        }
    }

    /// Calls so far.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// Calls of that tool in this run itself, without what its children called.
    pub fn of(&self, tool: &str) -> u64 {
        self.of.get(tool).copied().unwrap_or(0)
    }

    /// Calls of tools that are not counted by name.
    pub fn other(&self) -> u64 {
        self.other
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
    use crate::policies::{CallOutcome, Totals};

    fn call(calls: &mut ToolCalls, name: &str) {
        calls.observe(&["named".into()], &Observation::ToolCall { name, arguments: &Arguments::parse("{}") });
    }

    #[test]
    fn calls_are_counted_together_and_by_name() {
        let mut calls = ToolCalls::default();
        ["a", "b", "a"].iter().for_each(|name| call(&mut calls, name));
        let result = Observation::ToolResult { name: "a", outcome: CallOutcome::Success, text: "" };
        calls.observe(&[], &result);
        assert_eq!((calls.count(), calls.of("a"), calls.of("b"), calls.of("c")), (3, 2, 1, 0));
    }

    #[test]
    fn totals_rule_over_all_and_each_tool_is_still_counted() {
        let mut calls = ToolCalls::default();
        call(&mut calls, "a");
        calls.observe(&[], &Observation::Totals(&Totals { tool_calls: 9, ..Totals::default() }));
        call(&mut calls, "a");
        assert_eq!((calls.count(), calls.of("a")), (9, 2));
    }

    #[test]
    fn invented_names_neither_make_the_state_grow_nor_drive_out_a_tool_that_a_rule_asks_about() {
        let mut calls = ToolCalls::default();
        (0..1_000).for_each(|i| call(&mut calls, &format!("tool_{i}")));
        call(&mut calls, &"x".repeat(MAX_NAME_BYTES + 1));
        call(&mut calls, "named");
        call(&mut calls, "tool_7");
        assert_eq!((calls.of("named"), calls.of("tool_7"), calls.of("tool_999")), (1, 2, 0));
        assert_eq!((calls.other(), calls.count()), (1_001 - MAX_TOOLS as u64, 1_003));
    }
}
