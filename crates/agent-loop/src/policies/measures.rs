//! What is measured: the counters, and one small struct for each policy that needs more, fed with every observation.

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

/// All measures of a run. Stored with it.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(default)]
pub struct Measures {
    /// What is counted.
    #[serde(skip_serializing_if = "is_default")]
    pub counters: Counters,
    /// Time, since the beginning and at work.
    #[serde(skip_serializing_if = "is_default")]
    pub time: Time,
    /// Steps in a row in which nothing worked.
    #[serde(skip_serializing_if = "is_default")]
    pub errors: Errors,
    /// Answers that repeat earlier ones.
    #[serde(skip_serializing_if = "is_default")]
    pub replies: Replies,
    /// Texts and tools that rules ask about.
    #[serde(skip_serializing_if = "is_default")]
    pub mentions: Mentions,
    /// Tool cycles.
    #[serde(skip_serializing_if = "is_default")]
    pub tool_loops: ToolLoops,
    /// Repetition within streamed text. Not stored: a stream does not survive a restart.
    #[serde(skip)]
    pub chanting: Chanting,
    /// When the judge was asked last.
    #[serde(skip_serializing_if = "is_default")]
    pub judge: JudgeState,
}

/// What has not been touched needs no place in the store.
fn is_default<T: Default + PartialEq>(measure: &T) -> bool {
    *measure == T::default()
}

impl Measures {
    /// Takes what was seen and tells what may have changed by it.
    pub(crate) fn observe(&mut self, watched: &Watched, seen: &Observation<'_>) -> Touched {
        let judged = self.replies.observe(watched.equal_replies, seen);
        self.errors.observe(seen);
        self.counters.observe(&watched.counted_tools, seen);
        if watched.asked.meets(Touched::CHANTING) {
            self.chanting.observe(seen);
        }
        let replies = if judged { Touched::REPLIES } else { Touched::NOTHING };
        if matches!(seen, Observation::Text(_)) {
            // The other measures do not look at pieces. What a piece changes in errors and output is asked about at the
            // next whole thing.
            return Touched::CHANTING.and(replies);
        }
        self.time.observe(seen);
        self.mentions.observe(&watched.wanted, seen);
        self.judge.observe(seen);
        if watched.asked.meets(Touched::TOOL_LOOPS) {
            self.tool_loops.observe(&watched.tool_loops, seen);
        }
        touched_by(seen).and(replies)
    }

    /// Bytes that the model said and tools returned.
    pub fn output_bytes(&self) -> u64 {
        self.counters.count(Counter::OutputBytes)
    }

    /// What has been counted.
    pub(crate) fn count(&self, count: Count<'_>) -> u64 {
        match count {
            Count::ToolCallsOf(tool) => self.counters.calls_of(tool),
            Count::Of(Counter::WallMs) => self.time.wall_ms(),
            Count::Of(Counter::ActiveMs) => self.time.active_ms(),
            Count::Of(Counter::Errors) => self.errors.count(),
            Count::Of(counter) => self.counters.count(counter),
        }
    }

    /// Lets these forget, as far as they are about behaviour: what was used up stays used up.
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

/// What rules ask the measures to look at.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Watched {
    /// Everything that some rule asks about.
    pub(crate) asked: Touched,
    /// How tool cycles are recognised.
    pub(crate) tool_loops: ToolLoopConfig,
    /// Earlier equal answers that make a repetition.
    pub(crate) equal_replies: u64,
    /// Tools that rules count by name.
    pub(crate) counted_tools: Vec<String>,
    /// Texts and tools that rules look for.
    pub(crate) wanted: Wanted,
}

/// What such an event may change. Replies tell for themselves.
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
