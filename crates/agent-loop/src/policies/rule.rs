//! The vocabulary of the stop rules: what is counted, conditions over it, and what follows from them.

use serde::{Deserialize, Serialize};

/// Something that is counted in every run. Its row in [`counters`](super::counters) says when it counts and what it ends.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum Counter {
    /// Model calls begun in this request.
    Steps,
    /// Milliseconds since the run began.
    WallMs,
    /// Milliseconds at work: without waiting for a person.
    ActiveMs,
    /// Requests to the model.
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
    /// Bytes that the model said and tools returned.
    OutputBytes,
    /// Steps in a row in which every call failed.
    Errors,
    /// Answers in a row without a word or a call.
    EmptyReplies,
    /// Calls in a row of tools that do not exist.
    UnknownTools,
    /// Calls in a row with arguments that tools refuse.
    InvalidArguments,
    /// Denials of the same call.
    ApprovalReasks,
    /// Compactions in a row that won less than a tenth.
    Compactions,
}

/// Something that is true or false of a run at every moment.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// One of these is true.
    Any(Vec<Condition>),
    /// All of these are true.
    All(Vec<Condition>),
    /// This is not true.
    Not(Box<Condition>),
    /// So much is counted, in the unit of the counter. At least 1.
    AtLeast(Counter, u64),
    /// So many calls of one tool.
    ToolCallsOf(ToolCount),
    /// The newest answer repeats earlier ones.
    RepeatedReplies(bool),
    /// Tool calls go in circles.
    ToolLoop(bool),
    /// Streamed text repeats itself.
    Chanting(bool),
    /// The newest answer contains this text.
    Says(String),
    /// The step calls this tool.
    Calls(String),
}

/// A number of calls of one tool.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ToolCount {
    /// The tool.
    pub tool: String,
    /// From how many calls on. At least 1.
    #[serde(deserialize_with = "positive")]
    pub count: u64,
}

/// Reads a whole number of at least 1.
pub(super) fn positive<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = u64::try_from(i64::deserialize(deserializer)?).ok();
    let wrong = || serde::de::Error::custom("must be a whole number of at least 1");
    number.filter(|number| *number >= 1).ok_or_else(wrong)
}

/// A rule.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name: in evidence, in the log, and to replace a built-in rule of that name.
    pub name: String,
    /// When it fires.
    pub when: Condition,
    /// What follows.
    #[serde(default)]
    pub then: Then,
    /// What the model is told with a notice or a strike. Absent: a sentence that says what was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub say: Option<String>,
    /// From where on its conditions count.
    #[serde(default)]
    pub since: Since,
}

/// What follows when a rule fires.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// The model is told, once for each time the condition turns true; the run goes on.
    Notice,
    /// A strike: feedback and a recovery turn; the last strike ends the run. Off with `/loops off`. A condition that is
    /// still true after the recovery turn, such as a number of steps, is the next strike.
    Strike,
    /// The run ends.
    #[default]
    Stop,
}

/// From where on a rule counts.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "snake_case")]
pub enum Since {
    /// From the beginning of the request.
    #[default]
    Request,
    /// From its own last notice or strike: "every 20 calls" instead of "from 20 calls on". Texts, tools and loops are
    /// seen or not, and do not count.
    Notice,
}

impl Rule {
    /// A rule that counts from the beginning of the request and has no words of its own.
    pub fn new(name: impl Into<String>, when: Condition, then: Then) -> Self {
        Self { name: name.into(), when, then, say: None, since: Since::Request }
    }
}

/// What a leaf of a condition counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Count<'a> {
    /// A counter.
    Of(Counter),
    /// The calls of one tool.
    ToolCallsOf(&'a str),
}

/// A set of measures: those that an event may have changed, or those that a rule asks about. The bits are stored while a
/// verdict stands, so none is ever given another meaning.
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

    /// Both together.
    #[must_use]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is in both.
    #[must_use]
    pub(crate) const fn within(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether they have something in common.
    pub(crate) const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.0 == 0
    }
}

/// Dollars in millionths, at least one: a threshold of nothing would be true at once. What is not a number is no limit.
pub(crate) fn micro_usd(usd: f64) -> u64 {
    if usd.is_nan() {
        return u64::MAX;
    }
    // The cast saturates.
    ((usd * 1e6).round() as u64).max(1)
}
