//! The measures of a run: the counters, and a small struct for each policy that needs more. All of them process every
//! observation.

use serde::{Deserialize, Serialize};

use super::chanting::Chanting;
use super::counters::{self, Counters};
use super::errors::Errors;
use super::judge::JudgeState;
use super::mentions::{Mentions, Wanted};
use super::observation::Observation;
use super::replies::Replies;
use super::rule::{Count, Counter, Touched};
use super::time::Time;
use super::tool_loops::{ToolLoopConfig, ToolLoops};

/// All measures of a run. Stored with the run.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(default)]
pub struct Measures {
    /// The counters.
    #[serde(skip_serializing_if = "is_default")]
    pub counters: Counters,
    /// Time since the beginning, and active time.
    #[serde(skip_serializing_if = "is_default")]
    pub time: Time,
    /// Steps in a row in which every call failed.
    #[serde(skip_serializing_if = "is_default")]
    pub errors: Errors,
    /// Answers that repeat earlier ones.
    #[serde(skip_serializing_if = "is_default")]
    pub replies: Replies,
    /// Texts and tools that rules ask about and that were mentioned.
    #[serde(skip_serializing_if = "is_default")]
    pub mentions: Mentions,
    /// Loop detection in tool calls.
    #[serde(skip_serializing_if = "is_default")]
    pub tool_loops: ToolLoops,
    /// Repetition in streamed text, and what the person asked for.
    #[serde(skip_serializing_if = "Chanting::asks_nothing")]
    pub chanting: Chanting,
    /// The times of the judge's questions.
    #[serde(skip_serializing_if = "is_default")]
    pub judge: JudgeState,
}

/// Measures with their default value are not stored.
fn is_default<T: Default + PartialEq>(measure: &T) -> bool {
    *measure == T::default()
}

impl Measures {
    /// Processes an observation. Returns the measures that may have changed.
    pub(crate) fn observe(&mut self, watched: &Watched, seen: &Observation<'_>) -> Touched {
        let judged = self.replies.observe(watched.equal_replies, seen);
        self.errors.observe(seen);
        self.counters.observe(&watched.counted_tools, seen);
        if watched.read_measures.meets(Touched::CHANTING) {
            self.chanting.observe(seen);
        }
        let replies = if judged { Touched::REPLIES } else { Touched::NOTHING };
        if matches!(seen, Observation::Text(_)) {
            // The other measures ignore pieces of text. The changes that a piece makes to errors and output are
            // evaluated at the next complete observation.
            return Touched::CHANTING.and(replies);
        }
        self.time.observe(seen);
        self.mentions.observe(&watched.wanted, seen);
        self.judge.observe(seen);
        if watched.read_measures.meets(Touched::TOOL_LOOPS) {
            self.tool_loops.observe(&watched.tool_loops, seen);
        }
        touched_by(seen).and(replies)
    }

    /// Bytes of text that the model generated and tools returned.
    pub fn output_bytes(&self) -> u64 {
        self.counters.count(Counter::OutputBytes)
    }

    /// The current value of a count.
    pub(crate) fn count(&self, count: Count<'_>) -> u64 {
        match count {
            Count::ToolCallsOf(tool) => self.counters.calls_of(tool),
            Count::Of(Counter::WallMs) => self.time.wall_ms(),
            Count::Of(Counter::ActiveMs) => self.time.active_ms(),
            Count::Of(Counter::Errors) => self.errors.count(),
            Count::Of(counter) => self.counters.count(counter),
        }
    }

    /// Resets these measures, if they are about behaviour. Used resources are never reset.
    pub(crate) fn clear(&mut self, behind: Touched) {
        if behind.meets(Touched::TOOL_LOOPS) {
            self.tool_loops.clear();
        }
        if behind.meets(Touched::CHANTING) {
            self.chanting.clear();
        }
        if behind.meets(Touched::REPLIES) {
            self.replies.clear();
        }
        if behind.meets(Touched::ERRORS) {
            self.errors.clear();
        }
        self.counters.clear(behind);
    }
}

/// The measures, tools and texts that the rules use.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Watched {
    /// All measures that some rule reads.
    pub(crate) read_measures: Touched,
    /// The settings of loop detection in tool calls.
    pub(crate) tool_loops: ToolLoopConfig,
    /// The number of earlier equal answers that make a repetition.
    pub(crate) equal_replies: u64,
    /// Tools that rules count by name.
    pub(crate) counted_tools: Vec<String>,
    /// Texts and tools that rules search for.
    pub(crate) wanted: Wanted,
}

/// The measures that such an event may change. `Replies` reports its changes itself.
fn touched_by(seen: &Observation<'_>) -> Touched {
    let others = match seen {
        Observation::Step => Touched::ERRORS.and(Touched::CALLED),
        Observation::Assistant { .. } => Touched::SAID.and(Touched::CALLED).and(Touched::ERRORS).and(Touched::CHANTING),
        Observation::ToolCall { .. } => {
            Touched::CALLED.and(Touched::ERRORS).and(Touched::TOOL_LOOPS).and(Touched::CHANTING)
        }
        Observation::ToolResult { .. } => Touched::ERRORS.and(Touched::TOOL_LOOPS),
        Observation::Clock(_) => Touched::TIME.and(Touched::TOOL_LOOPS),
        Observation::Paused(_) => Touched::TIME,
        Observation::Text(_) => Touched::CHANTING,
        _ => Touched::NOTHING,
    };
    others.and(counters::touched_by(seen))
}
