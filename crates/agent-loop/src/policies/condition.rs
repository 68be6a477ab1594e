//! The algebra: conditions over measures, combined by `any`, `all` and `not`, as the configuration writes them.

use belay_protocol::{Finding, StopReason};
use serde::{Deserialize, Serialize};

use super::measures::{Count, Measures, Touched};
pub(crate) use view::{Baseline, View};

mod read;
mod view;

/// Something that is true or false of a run at every moment. A number is a threshold: true from it on; at least 1.
#[derive(Serialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// One of these is true.
    Any(Vec<Condition>),
    /// All of these are true.
    All(Vec<Condition>),
    /// This is not true.
    Not(Box<Condition>),
    /// Model calls begun in this request.
    Steps(u64),
    /// Seconds since the run began.
    WallClockS(u64),
    /// Seconds at work: without waiting for a person.
    ActiveS(u64),
    /// The same in milliseconds: of a limit that a message brings. No operator writes it.
    ActiveMs(u64),
    /// Requests to the model.
    ModelCalls(u64),
    /// Tool calls.
    ToolCalls(u64),
    /// Calls of one tool.
    ToolCallsOf(ToolCount),
    /// Tokens read.
    TokensIn(u64),
    /// Tokens generated.
    TokensOut(u64),
    /// Tokens read and generated.
    TokensTotal(u64),
    /// US dollars of this run.
    RunUsd(f64),
    /// US dollars of the session.
    SessionUsd(f64),
    /// Bytes that the model said and tools returned.
    OutputBytes(u64),
    /// Steps in a row in which every call failed.
    ConsecutiveErrors(u64),
    /// Answers in a row without a word or a call.
    EmptyReplies(u64),
    /// The newest answer repeats earlier ones.
    RepeatedReplies(bool),
    /// Calls in a row of tools that do not exist.
    UnknownTools(u64),
    /// Calls in a row with arguments that tools refuse.
    InvalidArguments(u64),
    /// Denials of the same call.
    ApprovalReasks(u64),
    /// Compactions in a row that won less than a tenth.
    CompactionsWithoutGain(u64),
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
    #[serde(deserialize_with = "read::positive")]
    pub count: u64,
}

/// What a leaf asks of the measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Leaf<'a> {
    /// Is this counted so often?
    AtLeast(Count<'a>, u64),
    /// Has this been seen?
    Seen(Sight<'a>),
    /// Never true: a flag that was written as false.
    Never,
}

/// Something that is seen or not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sight<'a> {
    ToolLoop,
    Chanting,
    RepeatedReplies,
    Says(&'a str),
    Calls(&'a str),
}

/// A condition, or its parts.
pub(crate) enum Part<'a> {
    Any(&'a [Condition]),
    All(&'a [Condition]),
    Not(&'a Condition),
    Leaf(Leaf<'a>),
}

impl Condition {
    /// What made it true: the first of its parts that is. `None`: it is not true.
    pub fn holds(&self, measures: &Measures) -> Option<Finding> {
        let view = View { measures, since: None };
        self.is_true(&view).then(|| self.finding(&view))
    }

    /// The same condition as its parts, or as the question it asks.
    pub(crate) fn part(&self) -> Part<'_> {
        let flag = |wanted: bool, sight| if wanted { Leaf::Seen(sight) } else { Leaf::Never };
        Part::Leaf(match self {
            Self::Any(parts) => return Part::Any(parts),
            Self::All(parts) => return Part::All(parts),
            Self::Not(part) => return Part::Not(part),
            Self::Steps(n) => Leaf::AtLeast(Count::Steps, *n),
            Self::WallClockS(s) => Leaf::AtLeast(Count::WallMs, s.saturating_mul(1000)),
            Self::ActiveS(s) => Leaf::AtLeast(Count::ActiveMs, s.saturating_mul(1000)),
            Self::ActiveMs(ms) => Leaf::AtLeast(Count::ActiveMs, *ms),
            Self::ModelCalls(n) => Leaf::AtLeast(Count::ModelCalls, *n),
            Self::ToolCalls(n) => Leaf::AtLeast(Count::ToolCalls, *n),
            Self::ToolCallsOf(of) => Leaf::AtLeast(Count::ToolCallsOf(&of.tool), of.count),
            Self::TokensIn(n) => Leaf::AtLeast(Count::TokensIn, *n),
            Self::TokensOut(n) => Leaf::AtLeast(Count::TokensOut, *n),
            Self::TokensTotal(n) => Leaf::AtLeast(Count::TokensTotal, *n),
            Self::RunUsd(usd) => Leaf::AtLeast(Count::RunMicroUsd, micro_usd(*usd)),
            Self::SessionUsd(usd) => Leaf::AtLeast(Count::SessionMicroUsd, micro_usd(*usd)),
            Self::OutputBytes(n) => Leaf::AtLeast(Count::OutputBytes, *n),
            Self::ConsecutiveErrors(n) => Leaf::AtLeast(Count::Errors, *n),
            Self::EmptyReplies(n) => Leaf::AtLeast(Count::EmptyReplies, *n),
            Self::UnknownTools(n) => Leaf::AtLeast(Count::UnknownTools, *n),
            Self::InvalidArguments(n) => Leaf::AtLeast(Count::InvalidArguments, *n),
            Self::ApprovalReasks(n) => Leaf::AtLeast(Count::ApprovalReasks, *n),
            Self::CompactionsWithoutGain(n) => Leaf::AtLeast(Count::Compactions, *n),
            Self::RepeatedReplies(wanted) => flag(*wanted, Sight::RepeatedReplies),
            Self::ToolLoop(wanted) => flag(*wanted, Sight::ToolLoop),
            Self::Chanting(wanted) => flag(*wanted, Sight::Chanting),
            Self::Says(text) => Leaf::Seen(Sight::Says(text)),
            Self::Calls(tool) => Leaf::Seen(Sight::Calls(tool)),
        })
    }

    /// Whether it is true. Allocates nothing.
    pub(crate) fn is_true(&self, view: &View<'_>) -> bool {
        match self.part() {
            Part::Any(parts) => parts.iter().any(|part| part.is_true(view)),
            Part::All(parts) => parts.iter().all(|part| part.is_true(view)),
            Part::Not(part) => !part.is_true(view),
            Part::Leaf(leaf) => leaf.is_true(view),
        }
    }

    /// What made it true, which it is: of `any` the first part that is true, of `all` the first that is no negation.
    /// Several conditions together are the operator's own reason, and none of theirs.
    pub(crate) fn finding(&self, view: &View<'_>) -> Finding {
        let own = |word: &str| Finding::new(StopReason::OperatorRule, word, 0, 0);
        match self.part() {
            Part::Any(parts) => match parts.iter().find(|part| part.is_true(view)) {
                Some(part) => part.finding(view),
                None => own("any"),
            },
            Part::All(parts) => {
                let telling = parts.iter().find(|part| !matches!(part, Self::Not(_))).or(parts.first());
                let mut finding = telling.map_or_else(|| own("all"), |part| part.finding(view));
                if parts.len() > 1 {
                    finding.reason = StopReason::OperatorRule;
                }
                finding
            }
            Part::Not(_) => own("not"),
            Part::Leaf(leaf) => leaf.finding(view),
        }
    }

    /// Calls `visit` with each leaf.
    pub(crate) fn each_leaf<'a>(&'a self, visit: &mut dyn FnMut(Leaf<'a>)) {
        match self.part() {
            Part::Any(parts) | Part::All(parts) => parts.iter().for_each(|part| part.each_leaf(visit)),
            Part::Not(part) => part.each_leaf(visit),
            Part::Leaf(leaf) => visit(leaf),
        }
    }

    /// The measures it asks about.
    pub(crate) fn asks_about(&self) -> Touched {
        let mut asked = Touched::NOTHING;
        self.each_leaf(&mut |leaf| asked = asked.and(leaf.asks_about()));
        asked
    }
}

impl Leaf<'_> {
    fn is_true(self, view: &View<'_>) -> bool {
        match self {
            Self::AtLeast(count, threshold) => view.count(count) >= threshold,
            Self::Seen(sight) => sight.is_there(view.measures),
            Self::Never => false,
        }
    }

    fn finding(self, view: &View<'_>) -> Finding {
        match self {
            Self::AtLeast(count, threshold) => count.finding(view, threshold),
            Self::Seen(sight) => sight.finding(view.measures),
            Self::Never => Finding::new(StopReason::OperatorRule, "never", 0, 0),
        }
    }

    fn asks_about(self) -> Touched {
        match self {
            Self::AtLeast(count, _) => count.measure(),
            Self::Seen(Sight::ToolLoop) => Touched::TOOL_LOOPS,
            Self::Seen(Sight::Chanting) => Touched::CHANTING,
            Self::Seen(Sight::RepeatedReplies) => Touched::REPLIES,
            Self::Seen(Sight::Says(_)) => Touched::SAID,
            Self::Seen(Sight::Calls(_)) => Touched::CALLED,
            Self::Never => Touched::NOTHING,
        }
    }
}

impl Sight<'_> {
    fn is_there(self, measures: &Measures) -> bool {
        match self {
            Self::ToolLoop => measures.tool_loops.found().is_some(),
            Self::Chanting => measures.chanting.found().is_some(),
            Self::RepeatedReplies => measures.replies.found().is_some(),
            Self::Says(text) => measures.mentions.says(text),
            Self::Calls(tool) => measures.mentions.calls(tool),
        }
    }

    fn finding(self, measures: &Measures) -> Finding {
        let mention = |word: &str, what: &str| Finding::new(StopReason::OperatorRule, word, 1, 1).quoting(what);
        let found = match self {
            Self::ToolLoop => measures.tool_loops.found(),
            Self::Chanting => measures.chanting.found(),
            Self::RepeatedReplies => measures.replies.found(),
            Self::Says(text) => return mention("says", text),
            Self::Calls(tool) => return mention("calls", tool),
        };
        // A layer that says it found something has a finding; this is for its type alone.
        found.cloned().unwrap_or_else(|| Finding::new(StopReason::OperatorRule, self.word(), 1, 1))
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::ToolLoop => "tool_loop",
            Self::Chanting => "chanting",
            Self::RepeatedReplies => "repeated_replies",
            Self::Says(_) => "says",
            Self::Calls(_) => "calls",
        }
    }
}

impl Count<'_> {
    /// Its word in the configuration and in evidence.
    pub(crate) fn word(self) -> &'static str {
        self.facts().0
    }

    fn measure(self) -> Touched {
        self.facts().2
    }

    /// How many of what is counted make one of what is written: milliseconds in a second, millionths in a dollar.
    pub(crate) fn scale(self) -> u64 {
        match self {
            Self::WallMs | Self::ActiveMs => 1000,
            Self::RunMicroUsd | Self::SessionMicroUsd => 1_000_000,
            _ => 1,
        }
    }

    /// Word, ending, and the measure that counts it.
    fn facts(self) -> (&'static str, StopReason, Touched) {
        match self {
            Self::Steps => ("steps", StopReason::OperatorRule, Touched::STEPS),
            Self::WallMs => ("wall_clock_s", StopReason::WallClock, Touched::TIME),
            Self::ActiveMs => ("active_s", StopReason::ActiveTime, Touched::TIME),
            Self::ModelCalls => ("model_calls", StopReason::ModelCalls, Touched::MODEL_CALLS),
            Self::ToolCalls => ("tool_calls", StopReason::ToolCalls, Touched::TOOL_CALLS),
            Self::ToolCallsOf(_) => ("tool_calls_of", StopReason::ToolCalls, Touched::TOOL_CALLS),
            Self::TokensIn => ("tokens_in", StopReason::Tokens, Touched::TOKENS),
            Self::TokensOut => ("tokens_out", StopReason::Tokens, Touched::TOKENS),
            Self::TokensTotal => ("tokens_total", StopReason::Tokens, Touched::TOKENS),
            Self::RunMicroUsd => ("run_usd", StopReason::RunCost, Touched::MONEY),
            Self::SessionMicroUsd => ("session_usd", StopReason::SessionCost, Touched::MONEY),
            Self::OutputBytes => ("output_bytes", StopReason::OutputBytes, Touched::OUTPUT),
            Self::Errors => ("consecutive_errors", StopReason::ConsecutiveErrors, Touched::ERRORS),
            Self::EmptyReplies => ("empty_replies", StopReason::EmptyReplies, Touched::EMPTY_REPLIES),
            Self::UnknownTools => ("unknown_tools", StopReason::UnknownTools, Touched::UNKNOWN_TOOLS),
            Self::InvalidArguments => ("invalid_arguments", StopReason::InvalidArguments, Touched::INVALID_ARGUMENTS),
            Self::ApprovalReasks => ("approval_reasks", StopReason::ApprovalReasks, Touched::APPROVAL_REASKS),
            Self::Compactions => ("compactions_without_gain", StopReason::CompactionLoop, Touched::COMPACTIONS),
        }
    }

    fn finding(self, view: &View<'_>, threshold: u64) -> Finding {
        let (word, reason, _) = self.facts();
        let value = view.count(self);
        match self {
            // Money is told in what it is counted in: a whole number.
            Self::RunMicroUsd | Self::SessionMicroUsd => {
                Finding::new(reason, word, value, threshold).with("unit", "micro_usd")
            }
            // Seconds are told where whole seconds were asked for.
            Self::WallMs | Self::ActiveMs if !threshold.is_multiple_of(self.scale()) => {
                Finding::new(reason, word, value, threshold).with("unit", "ms")
            }
            Self::WallMs | Self::ActiveMs => {
                Finding::new(reason, word, value / self.scale(), threshold / self.scale()).with("unit", "s")
            }
            Self::ToolCallsOf(tool) => Finding::new(reason, word, value, threshold).with("tool", tool),
            Self::Errors => Finding::new(reason, word, value, threshold).quoting(view.measures.errors.newest()),
            Self::UnknownTools => {
                Finding::new(reason, word, value, threshold).with("tool", view.measures.unknown_tools.newest())
            }
            Self::InvalidArguments => {
                Finding::new(reason, word, value, threshold).with("tool", view.measures.invalid_arguments.newest())
            }
            Self::ApprovalReasks => {
                Finding::new(reason, word, value, threshold).with("tool", view.measures.approval_reasks.newest())
            }
            _ => Finding::new(reason, word, value, threshold),
        }
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

#[cfg(test)]
mod tests;
