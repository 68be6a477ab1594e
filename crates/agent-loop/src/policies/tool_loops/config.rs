//! The settings of loop detection in tool calls.

use serde::{Deserialize, Serialize};

use super::Part;
use super::history::HISTORY;

/// Thresholds and tool lists of loop detection in tool calls.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct ToolLoopConfig {
    /// Repetitions of a cycle that are a loop. Also the repetitions of one call with one result, with any calls between
    /// them. Four times as many calls in a row without news are a loop, whatever they are; polls do not count, and of
    /// harmless calls four count as one. At least 2. Source of the default 5: Gemini CLI, `TOOL_CALL_LOOP_THRESHOLD`.
    pub repeats: u32,
    /// The longest cycle that is searched for, in calls. At least 1. `repeats` times `max_period` is at most 40, the
    /// number of stored calls.
    pub max_period: u32,
    /// Different calls with the same long result, or the same error, that are a loop. At least 2.
    pub same_result: u32,
    /// Similar calls with the same short result ("no results") that are a loop. At least 2. Greater than `same_result`,
    /// because equal short answers are weak evidence.
    pub same_short_result: u32,
    /// Results of one call that are a loop if all of them were seen before, but not all are the same. At least 2.
    pub alternating: u32,
    /// Polls with the same answer that are a loop. At least 2. Half as many if the answer says that the polled work has
    /// ended.
    pub polls: u32,
    /// Answers since the last news that repeat earlier ones of that stretch and are a loop. At least 2. An answer that
    /// differs only in its numbers counts half. A write that returns its target to an earlier state counts too.
    pub repeated_answers: u32,
    /// Names of polling tools, in addition to those that are recognised by their names.
    pub polling_tools: Vec<String>,
    /// Names of harmless tools, which neither report about the work nor change anything. In addition to those that are
    /// recognised by their names.
    pub harmless_tools: Vec<String>,
    /// A part of the analysis that is left out, to measure its effect. Not a setting.
    #[serde(skip)]
    pub without: Option<Part>,
}

impl Default for ToolLoopConfig {
    fn default() -> Self {
        Self {
            repeats: 5,
            max_period: 5,
            same_result: 5,
            same_short_result: 8,
            alternating: 8,
            polls: 24,
            repeated_answers: 4,
            polling_tools: Vec::new(),
            harmless_tools: Vec::new(),
            without: None,
        }
    }
}

impl ToolLoopConfig {
    /// Whether a part of the analysis is enabled.
    pub(super) fn has(&self, part: Part) -> bool {
        self.without != Some(part)
    }

    /// Returns every problem for the operator; empty if there is none. `prefix` is put before each key.
    pub fn validate(&self, prefix: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        for (key, value, least) in [
            ("repeats", self.repeats, 2),
            ("max_period", self.max_period, 1),
            ("same_result", self.same_result, 2),
            ("same_short_result", self.same_short_result, 2),
            ("alternating", self.alternating, 2),
            ("polls", self.polls, 2),
            ("repeated_answers", self.repeated_answers, 2),
        ] {
            if value < least {
                wrong.push(format!("{prefix}{key}: must be at least {least}, not {value}"));
            }
        }
        if u64::from(self.repeats) * u64::from(self.max_period) > HISTORY as u64 {
            wrong.push(format!(
                "{prefix}repeats: times max_period it must be at most {HISTORY}, not {} times {}",
                self.repeats, self.max_period
            ));
        }
        for (key, names) in [("polling_tools", &self.polling_tools), ("harmless_tools", &self.harmless_tools)] {
            if names.iter().any(|name| name.trim().is_empty()) {
                wrong.push(format!("{prefix}{key}: must not have an empty name"));
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_make_no_sense_are_refused_in_words() {
        let good = ToolLoopConfig::default();
        for (config, wrong) in [
            (good.clone(), vec![]),
            (ToolLoopConfig { repeats: 1, ..good.clone() }, vec!["loops.repeats: must be at least 2, not 1"]),
            (
                ToolLoopConfig { repeats: 9, ..good.clone() },
                vec!["loops.repeats: times max_period it must be at most 40, not 9 times 5"],
            ),
            (
                ToolLoopConfig { polling_tools: vec![" ".into()], ..good },
                vec!["loops.polling_tools: must not have an empty name"],
            ),
        ] {
            assert_eq!(config.validate("loops."), wrong);
        }
    }

    #[test]
    fn a_config_refuses_what_it_does_not_know() {
        assert_eq!(serde_json::from_str::<ToolLoopConfig>("{}").expect("valid"), ToolLoopConfig::default());
        assert!(serde_json::from_str::<ToolLoopConfig>(r#"{"repeat":5}"#).is_err());
    }
}
