//! What is measured: one small struct for each policy, fed with every observation.

use serde::{Deserialize, Serialize};

use super::chanting::Chanting;
use super::observation::Observation;
use super::rules::StopRules;
use super::tool_loops::ToolLoops;

/// All measures of a run. Stored with it.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(default)]
pub struct Measures {
    /// Model calls begun in this request.
    pub steps: u64,
    /// Tool cycles.
    pub tool_loops: ToolLoops,
    /// Repetition within streamed text. Not stored: a stream does not survive a restart.
    #[serde(skip)]
    pub chanting: Chanting,
}

impl Measures {
    /// Takes what was seen.
    pub(crate) fn observe(&mut self, rules: &StopRules, seen: &Observation<'_>) {
        if matches!(seen, Observation::Step) {
            self.steps += 1;
        }
        self.tool_loops.observe(&rules.tool_loops, seen);
        self.chanting.observe(seen);
    }
}
