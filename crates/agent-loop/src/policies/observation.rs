//! What the policies see of a run, in order.

use belay_protocol::{Arguments, ToolSpec};

/// One thing that happened in a run. Borrowed: seeing costs no copy.
#[derive(Clone, Copy, Debug)]
pub enum Observation<'a> {
    /// A model call begins: the next step.
    Step,
    /// A piece of the model's answer, while it streams.
    Text(&'a str),
    /// The model's whole answer. It repeats what the pieces before it said, or stands alone.
    Assistant {
        /// The text, possibly empty.
        text: &'a str,
        /// A brake of the loop has answered it, so that it counts for nothing.
        nudged: bool,
    },
    /// The model asks for a tool; nothing has run yet.
    ToolCall {
        /// The tool's name as the model gave it.
        name: &'a str,
        /// Its arguments.
        arguments: &'a Arguments,
        /// What the tool declares of itself. `None`: there is no such tool, or it is a recording.
        spec: Option<&'a ToolSpec>,
    },
    /// The result of the oldest open call of that tool.
    ToolResult {
        /// The tool.
        name: &'a str,
        /// How it went.
        outcome: CallOutcome,
        /// What the model reads.
        text: &'a str,
    },
    /// A message of the person within the same request.
    User(&'a str),
    /// Tokens of one model call, where each is told by itself (recordings).
    Usage {
        /// Tokens read.
        input: u64,
        /// Tokens generated.
        output: u64,
    },
    /// What the whole tree of the run has used so far, children included (live runs). Replaces what was counted.
    Totals(&'a Totals),
    /// The time, in milliseconds since any fixed point. It never runs backwards; an earlier one is taken as no time.
    Clock(u64),
    /// The last so many milliseconds were spent waiting for a person, or the run was not there: no time at work.
    Paused(u64),
    /// The context was shortened.
    Compacted {
        /// Its estimated tokens before.
        before: u64,
        /// And after.
        after: u64,
    },
    /// Something without effect: a thought, a citation.
    Other,
    /// A new request of the person: everything is forgotten but whether detection is off.
    Reset,
    /// The caller saw the verdict and grants a recovery turn: the latch opens, and the layer that fired forgets.
    Recover,
    /// Loop detection is off from here on; limits stay.
    Disable,
}

/// How a tool call went, as far as the policies care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// It worked.
    Success,
    /// It failed.
    Failed,
    /// There is no such tool.
    UnknownTool,
    /// The tool refuses the arguments.
    InvalidArguments,
    /// A person, a hook or a rule said no.
    Denied,
    /// It was not run, for no fault of the call.
    NotExecuted,
}

impl CallOutcome {
    /// Whether the call did not do what was asked.
    pub fn is_failure(self) -> bool {
        !matches!(self, Self::Success | Self::NotExecuted)
    }
}

/// What a run and everything it started have used: the figures that budgets are about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests sent to the model, failed ones included.
    pub model_calls: u64,
    /// Tool calls that were begun.
    pub tool_calls: u64,
    /// Tokens read.
    pub tokens_in: u64,
    /// Tokens generated.
    pub tokens_out: u64,
    /// Money of this run, in millionths of a US dollar.
    pub run_micro_usd: u64,
    /// Money of the whole session, this run included, in millionths of a US dollar.
    pub session_micro_usd: u64,
    /// Bytes of text that the model said and tools returned.
    pub output_bytes: u64,
}
