//! The events of a run, as the policies see them.

use belay_protocol::{Arguments, ToolSpec};

/// One event of a run. It borrows its content, so that observing costs no copy.
#[derive(Clone, Copy, Debug)]
pub enum Observation<'a> {
    /// A model call begins, and with it the next step.
    Step,
    /// A piece of the model's answer from the stream.
    Text(&'a str),
    /// The complete answer of the model. It repeats the pieces before it, or comes without pieces.
    Assistant {
        /// The text, possibly empty.
        text: &'a str,
        /// A guardrail of the loop has handled it, so that it is ignored.
        nudged: bool,
    },
    /// The model asks for a tool call, which has not run yet.
    ToolCall {
        /// The tool's name as the model gave it.
        name: &'a str,
        /// The arguments of the call.
        arguments: &'a Arguments,
        /// The specification of the tool. `None`: the tool does not exist, or the run is a recording.
        spec: Option<&'a ToolSpec>,
    },
    /// The result of the oldest open call of this tool.
    ToolResult {
        /// The tool.
        name: &'a str,
        /// The outcome of the call.
        outcome: CallOutcome,
        /// The text that the model reads.
        text: &'a str,
    },
    /// Another message of the person in the same request.
    User(&'a str),
    /// Tokens of one model call (recordings, which contain each call's figures).
    Usage {
        /// Tokens read.
        input: u64,
        /// Tokens generated.
        output: u64,
    },
    /// The total usage of the whole run tree so far, including child runs (live runs). Replaces the counted figures.
    Totals(&'a Totals),
    /// The time, in milliseconds since any fixed point. An earlier time than the newest is ignored.
    Clock(u64),
    /// The run waited for a person, or was not running, for this many milliseconds until now. They are not active time.
    Paused(u64),
    /// The context was shortened.
    Compacted {
        /// Estimated tokens before.
        before: u64,
        /// Estimated tokens after.
        after: u64,
    },
    /// An event without effect: a thought, a citation.
    Other,
    /// A new request of the person. Resets everything except whether detection is off.
    Reset,
    /// The caller has handled the verdict and grants a recovery turn. Releases the latch and resets the layer that
    /// fired.
    Recover,
    /// Turns loop detection off from here on. Limits remain.
    Disable,
}

/// The outcome of a tool call, as far as the policies need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// The call succeeded.
    Success,
    /// The call failed.
    Failed,
    /// The tool does not exist.
    UnknownTool,
    /// The tool refuses the arguments.
    InvalidArguments,
    /// A person, a hook or a rule refused the call.
    Denied,
    /// The call was not run, for a reason that is not its fault.
    NotExecuted,
}

impl CallOutcome {
    /// Whether the call did not do what was asked.
    pub fn is_failure(self) -> bool {
        !matches!(self, Self::Success | Self::NotExecuted)
    }
}

/// The total usage of a run and the runs that it started: the figures that budgets limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests to the model, including failed ones.
    pub model_calls: u64,
    /// Tool calls that began.
    pub tool_calls: u64,
    /// Tokens read.
    pub tokens_in: u64,
    /// Tokens generated.
    pub tokens_out: u64,
    /// Cost of this run, in millionths of a US dollar.
    pub run_micro_usd: u64,
    /// Cost of the whole session including this run, in millionths of a US dollar.
    pub session_micro_usd: u64,
    /// Bytes of text that the model generated and tools returned.
    pub output_bytes: u64,
}
