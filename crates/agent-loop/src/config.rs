//! The few numbers of the loop. The delegate's owner chooses them; they are not read from a file here.

use std::sync::Arc;

use crate::policies::StopRules;

/// How long a run may go on, and how patient it is with announcements.
#[derive(Clone, Debug, PartialEq)]
pub struct AgenticLoopConfig {
    /// Most iterations, and so most model calls, of a run over all its attempts. 0 ends it before its first call.
    pub max_iterations: u32,
    /// Whether a text that announces a tool without calling one is answered by a nudge.
    pub enable_tool_intent_nudge: bool,
    /// Most nudges in a row; the next announcement is let through as a text. 0: none.
    pub max_tool_intent_nudges: u32,
    /// The rules for stopping.
    pub rules: Arc<StopRules>,
}

impl Default for AgenticLoopConfig {
    /// 50 iterations and 2 nudges: the figures that chat, job and container runs of this kind of loop have been run
    /// with elsewhere, and the progress rules without limits.
    fn default() -> Self {
        Self {
            max_iterations: 50,
            enable_tool_intent_nudge: true,
            max_tool_intent_nudges: 2,
            rules: Arc::new(StopRules::progress()),
        }
    }
}
