//! The few numbers of the loop. The delegate's owner chooses them; they are not read from a file here.

/// How long a run may go on, and how patient it is with announcements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgenticLoopConfig {
    /// Most iterations, and so most model calls, of a run over all its attempts. 0 ends it before its first call.
    pub max_iterations: u32,
    /// Whether a text that announces a tool without calling one is answered by a nudge.
    pub enable_tool_intent_nudge: bool,
    /// Most nudges in a row; the next announcement is let through as a text. 0: none.
    pub max_tool_intent_nudges: u32,
}

impl Default for AgenticLoopConfig {
    /// 50 iterations and 2 nudges: the figures that chat, job and container runs of this kind of loop have been run
    /// with elsewhere.
    fn default() -> Self {
        Self { max_iterations: 50, enable_tool_intent_nudge: true, max_tool_intent_nudges: 2 }
    }
}
