//! Counts tool calls by tool name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Most tools that are counted by name. 256: twice as many as the largest tool sets offer. The limit keeps the state
/// small when a model invents tool names.
const MAX_TOOLS: usize = 256;

/// Longest name that is counted, in bytes. 128: twice what providers allow.
const MAX_NAME_BYTES: usize = 128;

/// The number of calls of each tool.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(default)]
pub(super) struct ByTool(BTreeMap<String, u64>);

impl ByTool {
    /// Counts one call. Tools in `named` are always counted, even if invented names have filled the table.
    pub(super) fn add(&mut self, named: &[String], name: &str) {
        if let Some(count) = self.0.get_mut(name) {
            *count = count.saturating_add(1);
        } else if named.iter().any(|known| known == name) || (self.0.len() < MAX_TOOLS && name.len() <= MAX_NAME_BYTES)
        {
            self.0.insert(name.to_owned(), 1);
        }
    }

    /// The number of calls of this tool.
    pub(super) fn of(&self, tool: &str) -> u64 {
        self.0.get(tool).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invented_names_neither_make_the_state_grow_nor_drive_out_a_tool_that_a_rule_asks_about() {
        let mut calls = ByTool::default();
        let named = ["named".to_owned()];
        (0..1_000).for_each(|i| calls.add(&named, &format!("tool_{i}")));
        ["x".repeat(MAX_NAME_BYTES + 1).as_str(), "named", "tool_7"].iter().for_each(|name| calls.add(&named, name));
        assert_eq!((calls.of("named"), calls.of("tool_7"), calls.of("tool_999")), (1, 2, 0));
        assert_eq!(calls.0.len(), MAX_TOOLS + 1);
    }
}
