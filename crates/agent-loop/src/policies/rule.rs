//! The vocabulary of the stop rules: counters, conditions over them, and actions.

use serde::{Deserialize, Serialize};

/// A figure that is counted in every run. Its row in [`counters`](super::counters) defines when it counts and the stop
/// reason.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum Counter {
    /// Model calls begun in this request.
    Steps,
    /// Milliseconds since the run began.
    WallMs,
    /// Milliseconds of active time, without waiting for a person.
    ActiveMs,
    /// Requests to the model, including failed ones.
    ModelCalls,
    /// Tool calls.
    ToolCalls,
    /// Tokens read.
    TokensIn,
    /// Tokens generated.
    TokensOut,
    /// Tokens read and generated.
    TokensTotal,
    /// Money of this run, in millionths of a US dollar.
    RunMicroUsd,
    /// Money of the session, in millionths of a US dollar.
    SessionMicroUsd,
    /// Bytes of text that the model generated and tools returned.
    OutputBytes,
    /// Steps in a row in which every call failed.
    Errors,
    /// Answers in a row with neither text nor calls.
    EmptyReplies,
    /// Calls in a row of tools that do not exist.
    UnknownTools,
    /// Calls in a row with arguments that tools refuse.
    InvalidArguments,
    /// Denials of the same call.
    ApprovalReasks,
    /// Compactions in a row that saved less than a tenth.
    Compactions,
}

/// A statement that is true or false for a run at every moment.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// One of these is true.
    Any(Vec<Condition>),
    /// All of these are true.
    All(Vec<Condition>),
    /// This is not true.
    Not(Box<Condition>),
    /// The counter has reached this number, in the unit of the counter. At least 1.
    AtLeast(Counter, u64),
    /// One tool has been called this often.
    ToolCallsOf(ToolCount),
    /// The newest answer repeats earlier ones.
    RepeatedReplies(bool),
    /// Tool calls form a loop.
    ToolLoop(bool),
    /// Streamed text repeats itself.
    Chanting(bool),
    /// The newest answer contains this text.
    Says(String),
    /// The step has called this tool.
    Calls(String),
}

/// A number of calls of one tool.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ToolCount {
    /// The tool.
    pub tool: String,
    /// The number of calls from which the condition is true. At least 1.
    #[serde(deserialize_with = "positive")]
    pub count: u64,
}

/// Deserialises a whole number of at least 1.
pub(super) fn positive<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = u64::try_from(i64::deserialize(deserializer)?).ok();
    let wrong = || serde::de::Error::custom("must be a whole number of at least 1");
    number.filter(|number| *number >= 1).ok_or_else(wrong)
}

/// A stop rule.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The name in the evidence and in the log. A rule with the name of a built-in rule replaces it.
    pub name: String,
    /// The condition.
    pub when: Condition,
    /// The action.
    #[serde(default)]
    pub then: Then,
    /// The text for the model with a notice or a strike. Absent: a sentence about the finding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub say: Option<String>,
    /// The start of its counts.
    #[serde(default)]
    pub since: Since,
}

/// The action of a rule.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// Tells the model, once each time the condition becomes true. The run continues.
    Notice,
    /// A strike: feedback and a recovery turn. The last strike ends the run. `/loops off` disables it. A condition that
    /// is still true after the recovery turn, such as a number of steps, gives the next strike.
    Strike,
    /// Ends the run.
    #[default]
    Stop,
}

/// The start of a rule's counts.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "snake_case")]
pub enum Since {
    /// The beginning of the request.
    #[default]
    Request,
    /// The last notice or strike of this rule: "every 20 calls" instead of "from 20 calls on". It does not affect
    /// texts, tools and loops, which are not counted.
    Notice,
}

impl Rule {
    /// Makes a rule that counts from the beginning of the request and has no text of its own.
    pub fn new(name: impl Into<String>, when: Condition, then: Then) -> Self {
        Self { name: name.into(), when, then, say: None, since: Since::Request }
    }
}

/// The count that a leaf of a condition reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Count<'a> {
    /// A counter.
    Of(Counter),
    /// The calls of one tool.
    ToolCallsOf(&'a str),
}

/// A set of measures: those that an event may have changed, or those that a rule asks about. The bits are stored while
/// a verdict is in force, so the meaning of a bit never changes.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
#[serde(transparent)]
pub(crate) struct Touched(u32);

impl Touched {
    pub(crate) const NOTHING: Self = Self(0);
    pub(crate) const STEPS: Self = Self(1);
    pub(crate) const TIME: Self = Self(1 << 1);
    pub(crate) const MODEL_CALLS: Self = Self(1 << 2);
    pub(crate) const TOOL_CALLS: Self = Self(1 << 3);
    pub(crate) const TOKENS: Self = Self(1 << 4);
    pub(crate) const MONEY: Self = Self(1 << 5);
    pub(crate) const OUTPUT: Self = Self(1 << 6);
    pub(crate) const ERRORS: Self = Self(1 << 7);
    pub(crate) const EMPTY_REPLIES: Self = Self(1 << 8);
    pub(crate) const REPLIES: Self = Self(1 << 9);
    pub(crate) const UNKNOWN_TOOLS: Self = Self(1 << 10);
    pub(crate) const INVALID_ARGUMENTS: Self = Self(1 << 11);
    pub(crate) const APPROVAL_REASKS: Self = Self(1 << 12);
    pub(crate) const COMPACTIONS: Self = Self(1 << 13);
    pub(crate) const SAID: Self = Self(1 << 14);
    pub(crate) const CALLED: Self = Self(1 << 15);
    pub(crate) const TOOL_LOOPS: Self = Self(1 << 16);
    pub(crate) const CHANTING: Self = Self(1 << 17);

    /// The union of both.
    #[must_use]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The intersection of both.
    #[must_use]
    pub(crate) const fn within(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether they have a measure in common.
    pub(crate) const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.0 == 0
    }
}

/// Converts dollars to millionths, at least 1: a threshold of 0 would be true at once. NaN means no limit.
pub(crate) fn micro_usd(usd: f64) -> u64 {
    if usd.is_nan() {
        return u64::MAX;
    }
    // The cast saturates.
    ((usd * 1e6).round() as u64).max(1)
}
