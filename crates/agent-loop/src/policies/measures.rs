//! What is measured: one small struct for each policy, fed with every observation.

use serde::{Deserialize, Serialize};

use super::approval_reasks::ApprovalReasks;
use super::chanting::Chanting;
use super::compactions::Compactions;
use super::empty_replies::EmptyReplies;
use super::errors::Errors;
use super::invalid_arguments::InvalidArguments;
use super::judge::JudgeState;
use super::mentions::Mentions;
use super::model_calls::ModelCalls;
use super::money::Money;
use super::observation::Observation;
use super::output_bytes::OutputBytes;
use super::replies::Replies;
use super::rules::StopRules;
use super::steps::Steps;
use super::time::Time;
use super::tokens::Tokens;
use super::tool_calls::ToolCalls;
use super::tool_loops::ToolLoops;
use super::unknown_tools::UnknownTools;

/// All measures of a run. Stored with it.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(default)]
pub struct Measures {
    /// Model calls begun in this request.
    #[serde(skip_serializing_if = "is_default")]
    pub steps: Steps,
    /// Time, since the beginning and at work.
    #[serde(skip_serializing_if = "is_default")]
    pub time: Time,
    /// Requests to the model.
    #[serde(skip_serializing_if = "is_default")]
    pub model_calls: ModelCalls,
    /// Tool calls, all together and for each tool.
    #[serde(skip_serializing_if = "is_default")]
    pub tool_calls: ToolCalls,
    /// Tokens read and generated.
    #[serde(skip_serializing_if = "is_default")]
    pub tokens: Tokens,
    /// Money of the run and its session.
    #[serde(skip_serializing_if = "is_default")]
    pub money: Money,
    /// Bytes that the model said and tools returned.
    #[serde(skip_serializing_if = "is_default")]
    pub output_bytes: OutputBytes,
    /// Steps in a row in which nothing worked.
    #[serde(skip_serializing_if = "is_default")]
    pub errors: Errors,
    /// Answers in a row without a word or a call.
    #[serde(skip_serializing_if = "is_default")]
    pub empty_replies: EmptyReplies,
    /// Answers that repeat earlier ones.
    #[serde(skip_serializing_if = "is_default")]
    pub replies: Replies,
    /// Calls in a row of tools that do not exist.
    #[serde(skip_serializing_if = "is_default")]
    pub unknown_tools: UnknownTools,
    /// Calls in a row with arguments that tools refuse.
    #[serde(skip_serializing_if = "is_default")]
    pub invalid_arguments: InvalidArguments,
    /// Denials of the same call.
    #[serde(skip_serializing_if = "is_default")]
    pub approval_reasks: ApprovalReasks,
    /// Compactions in a row that won nothing.
    #[serde(skip_serializing_if = "is_default")]
    pub compactions: Compactions,
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
    pub(crate) fn observe(&mut self, rules: &StopRules, seen: &Observation<'_>) -> Touched {
        let judged = self.replies.observe(rules.equal_replies, seen);
        self.errors.observe(seen);
        self.output_bytes.observe(seen);
        if rules.ask_about(Touched::CHANTING) {
            self.chanting.observe(seen);
        }
        let replies = if judged { Touched::REPLIES } else { Touched::NOTHING };
        if matches!(seen, Observation::Text(_)) {
            // The other measures do not look at pieces. What a piece changes in errors and output is asked about at the
            // next whole thing.
            return Touched::CHANTING.and(replies);
        }
        self.steps.observe(seen);
        self.time.observe(seen);
        self.model_calls.observe(seen);
        self.tool_calls.observe(&rules.counted_tools, seen);
        self.tokens.observe(seen);
        self.money.observe(seen);
        self.empty_replies.observe(seen);
        self.unknown_tools.observe(seen);
        self.invalid_arguments.observe(seen);
        self.approval_reasks.observe(seen);
        self.compactions.observe(seen);
        self.mentions.observe(&rules.wanted, seen);
        self.judge.observe(seen);
        if rules.ask_about(Touched::TOOL_LOOPS) {
            self.tool_loops.observe(&rules.tool_loops, seen);
        }
        Touched::by(seen).and(replies)
    }

    /// What has been counted.
    pub(crate) fn count(&self, count: Count<'_>) -> u64 {
        match count {
            Count::Steps => self.steps.count(),
            Count::WallMs => self.time.wall_ms(),
            Count::ActiveMs => self.time.active_ms(),
            Count::ModelCalls => self.model_calls.count(),
            Count::ToolCalls => self.tool_calls.count(),
            Count::ToolCallsOf(tool) => self.tool_calls.of(tool),
            Count::TokensIn => self.tokens.input(),
            Count::TokensOut => self.tokens.output(),
            Count::TokensTotal => self.tokens.total(),
            Count::RunMicroUsd => self.money.run_micro_usd(),
            Count::SessionMicroUsd => self.money.session_micro_usd(),
            Count::OutputBytes => self.output_bytes.count(),
            Count::Errors => self.errors.count(),
            Count::EmptyReplies => self.empty_replies.count(),
            Count::UnknownTools => self.unknown_tools.count(),
            Count::InvalidArguments => self.invalid_arguments.count(),
            Count::ApprovalReasks => self.approval_reasks.count(),
            Count::Compactions => self.compactions.count(),
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
        if behind.meets(Touched::EMPTY_REPLIES) {
            self.empty_replies.clear();
        }
        if behind.meets(Touched::UNKNOWN_TOOLS) {
            self.unknown_tools.clear();
        }
        if behind.meets(Touched::INVALID_ARGUMENTS) {
            self.invalid_arguments.clear();
        }
        if behind.meets(Touched::APPROVAL_REASKS) {
            self.approval_reasks.clear();
        }
        if behind.meets(Touched::COMPACTIONS) {
            self.compactions.clear();
        }
    }
}

/// Something that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Count<'a> {
    Steps,
    WallMs,
    ActiveMs,
    ModelCalls,
    ToolCalls,
    ToolCallsOf(&'a str),
    TokensIn,
    TokensOut,
    TokensTotal,
    RunMicroUsd,
    SessionMicroUsd,
    OutputBytes,
    Errors,
    EmptyReplies,
    UnknownTools,
    InvalidArguments,
    ApprovalReasks,
    Compactions,
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

    /// What such an event may change. Replies tell for themselves.
    fn by(seen: &Observation<'_>) -> Self {
        const STEP: Touched = Touched::STEPS
            .and(Touched::MODEL_CALLS)
            .and(Touched::EMPTY_REPLIES)
            .and(Touched::OUTPUT)
            .and(Touched::ERRORS)
            .and(Touched::CALLED);
        const ASSISTANT: Touched = Touched::SAID
            .and(Touched::CALLED)
            .and(Touched::EMPTY_REPLIES)
            .and(Touched::OUTPUT)
            .and(Touched::ERRORS)
            .and(Touched::CHANTING);
        const CALL: Touched = Touched::TOOL_CALLS
            .and(Touched::CALLED)
            .and(Touched::EMPTY_REPLIES)
            .and(Touched::ERRORS)
            .and(Touched::TOOL_LOOPS)
            .and(Touched::CHANTING);
        const RESULT: Touched = Touched::ERRORS
            .and(Touched::UNKNOWN_TOOLS)
            .and(Touched::INVALID_ARGUMENTS)
            .and(Touched::APPROVAL_REASKS)
            .and(Touched::OUTPUT)
            .and(Touched::TOOL_LOOPS);
        const TOTALS: Touched =
            Touched::MODEL_CALLS.and(Touched::TOOL_CALLS).and(Touched::TOKENS).and(Touched::MONEY).and(Touched::OUTPUT);
        match seen {
            Observation::Step => STEP,
            Observation::Assistant { .. } => ASSISTANT,
            Observation::ToolCall { .. } => CALL,
            Observation::ToolResult { .. } => RESULT,
            Observation::Usage { .. } => Self::TOKENS,
            Observation::Totals(_) => TOTALS,
            Observation::Clock(_) => Self::TIME.and(Self::TOOL_LOOPS),
            Observation::Paused(_) => Self::TIME,
            Observation::Compacted { .. } => Self::COMPACTIONS,
            Observation::Text(_) => Self::CHANTING,
            Observation::User(_)
            | Observation::Other
            | Observation::Reset
            | Observation::Recover
            | Observation::Disable => Self::NOTHING,
        }
    }

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
