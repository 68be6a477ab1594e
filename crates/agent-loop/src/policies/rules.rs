//! The rules of a run: conditions and what follows from each.

use serde::{Deserialize, Serialize};

use super::condition::Condition;
use super::tool_loops::ToolLoopConfig;

/// Rules, compiled from the configuration once and shared by all runs.
#[derive(Clone, Debug, PartialEq)]
pub struct StopRules {
    /// In the order in which they are asked; of several that turn true at once, [`StopReason::precedence`] decides.
    ///
    /// [`StopReason::precedence`]: belay_protocol::StopReason::precedence
    pub rules: Vec<Rule>,
    /// How tool cycles are recognised.
    pub tool_loops: ToolLoopConfig,
    /// Strikes of loop detection that end a run; the ones before give a recovery turn. At least 1.
    pub max_strikes: u32,
}

/// A rule.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name: in evidence, in the log, and to switch it off.
    pub name: String,
    /// When it fires.
    pub when: Condition,
    /// What follows.
    #[serde(default)]
    pub then: Then,
    /// What the model is told with a notice or a strike. Absent: a sentence that says what was seen.
    #[serde(default)]
    pub say: Option<String>,
}

/// What follows when a rule fires.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// The model is told, once for each time the condition turns true; the run goes on.
    Notice,
    /// A strike: feedback and a recovery turn; the last strike ends the run. Off with `/loops off`.
    Strike,
    /// The run ends.
    #[default]
    Stop,
}

impl StopRules {
    /// The progress rules alone: loops, chanting, repetition, errors. What `belay stops check` judges by.
    pub fn progress() -> Self {
        let rule = |name: &str, when, then| Rule { name: name.into(), when, then, say: None };
        Self {
            rules: vec![
                rule("tool_loop", Condition::ToolLoop(true), Then::Strike),
                rule("chanting", Condition::Chanting(true), Then::Strike),
            ],
            tool_loops: ToolLoopConfig::default(),
            max_strikes: 2,
        }
    }

    /// No rules at all.
    pub fn none() -> Self {
        Self { rules: Vec::new(), tool_loops: ToolLoopConfig::default(), max_strikes: 2 }
    }
}
