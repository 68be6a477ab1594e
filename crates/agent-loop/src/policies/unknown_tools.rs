//! Calls of tools that do not exist.

use serde::{Deserialize, Serialize};

use super::observation::{CallOutcome, Observation};
use super::streak::Streak;

/// Counts calls in a row of tools that do not exist. What was not executed says nothing about it.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(transparent)]
pub struct UnknownTools(Streak);

impl UnknownTools {
    /// Takes what was seen.
    pub fn observe(&mut self, seen: &Observation<'_>) {
        match seen {
            Observation::ToolResult { outcome: CallOutcome::NotExecuted, .. } => {}
            Observation::ToolResult { name, outcome: CallOutcome::UnknownTool, .. } => self.0.add(name),
            Observation::ToolResult { .. } => self.0.reset(),
            _ => {}
        }
    }

    /// Such calls in a row.
    pub fn count(&self) -> u64 {
        self.0.count()
    }

    /// The name that the newest one called; empty without one.
    pub fn newest(&self) -> &str {
        self.0.tool()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_in_a_row_count_and_what_was_not_executed_is_passed_over() {
        use CallOutcome::{Denied, Failed, InvalidArguments, NotExecuted, Success, UnknownTool};
        let table: &[(&[CallOutcome], u64)] = &[
            (&[UnknownTool, UnknownTool, UnknownTool], 3),
            (&[UnknownTool, NotExecuted, UnknownTool], 2),
            (&[UnknownTool, Success, UnknownTool], 1),
            (&[UnknownTool, UnknownTool, Failed], 0),
            (&[UnknownTool, InvalidArguments], 0),
            (&[UnknownTool, Denied], 0),
            (&[], 0),
        ];
        for (outcomes, count) in table {
            let mut streak = UnknownTools::default();
            for outcome in *outcomes {
                streak.observe(&Observation::ToolResult { name: "tool", outcome: *outcome, text: "" });
                streak.observe(&Observation::Step);
            }
            assert_eq!(streak.count(), *count, "{outcomes:?}");
            assert_eq!(streak.newest(), if *count > 0 { "tool" } else { "" });
        }
    }
}
