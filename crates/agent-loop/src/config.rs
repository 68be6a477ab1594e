//! Settings of the loop. The code that starts a run chooses them; this crate reads no file.

use std::sync::Arc;

use crate::policies::StopRules;

/// The limits of a run, and the tolerance of the tool-intent nudge.
#[derive(Clone, Debug, PartialEq)]
pub struct AgenticLoopConfig {
    /// Most iterations of a run, over all its attempts. An iteration contains one model call. 0 ends the run before its
    /// first call.
    pub max_iterations: u32,
    /// Whether a text that announces a tool, but calls none, is answered with a nudge.
    pub enable_tool_intent_nudge: bool,
    /// Most nudges in a row. The next announcement passes as a text. 0: no nudges.
    pub max_tool_intent_nudges: u32,
    /// The stop rules.
    pub rules: Arc<StopRules>,
}

impl AgenticLoopConfig {
    /// 50 iterations, 2 nudges, and these rules. Other agent programs run their chat, job and container loops with these
    /// figures.
    pub fn with_rules(rules: Arc<StopRules>) -> Self {
        Self { max_iterations: 50, enable_tool_intent_nudge: true, max_tool_intent_nudges: 2, rules }
    }
}

impl Default for AgenticLoopConfig {
    /// The same with the progress rules, which are compiled for it, without limits.
    fn default() -> Self {
        Self::with_rules(Arc::new(StopRules::progress()))
    }
}
