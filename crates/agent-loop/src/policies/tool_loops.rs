//! Tool cycles: the same calls, again and again, without anything new.

use belay_protocol::Finding;
use serde::{Deserialize, Serialize};

use super::observation::Observation;

/// The wire name of this kind of loop.
pub const CONSECUTIVE_IDENTICAL_TOOL_CALLS: &str = "CONSECUTIVE_IDENTICAL_TOOL_CALLS";

/// How tool cycles are recognised.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct ToolLoopConfig {
    /// Repetitions of a cycle that are a loop. At least 2.
    pub repeats: u32,
}

impl Default for ToolLoopConfig {
    fn default() -> Self {
        Self { repeats: 5 }
    }
}

/// What is remembered of the calls of a run.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(default)]
pub struct ToolLoops {
    found: Option<Finding>,
}

impl ToolLoops {
    /// Takes what was seen; looks at calls, results and resets alone.
    pub fn observe(&mut self, _config: &ToolLoopConfig, _seen: &Observation<'_>) {}

    /// The loop that was found and stands.
    pub fn found(&self) -> Option<&Finding> {
        self.found.as_ref()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
