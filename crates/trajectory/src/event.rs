//! One event of a recorded trajectory, and the line that it is written as.
//!
//! Twelve forms, one JSON object a line, one event each:
//!
//! ```text
//! {"tool":{"name":"read_file","args":{"path":"a.txt"}}}     {"tool_result":{"name":"read_file","ok":false,"text":"…"}}
//! {"text":"one streamed piece"}   {"assistant":"whole"}     {"user":"…"}   {"other":"a thought, a citation"}
//! {"turn":true}  {"usage":{"input":812,"output":64}}  {"clock_ms":1500}  {"reset":true}  {"recover":true}  {"disable":true}
//! ```
//!
//! Reading is lenient where a person would be: `ok` is true unless it says otherwise, `args` may be any JSON (a string is
//! taken as what the model wrote), fields that nobody asked for are passed over. It is strict where a mistake would
//! change the meaning: a line without an event, or with two, is refused.

use belay_agent_loop::policies::{CallOutcome, Observation};
use belay_protocol::Arguments;

mod line;
mod outcome;
mod writing;
mod written;

pub(crate) use line::Fault;
pub(crate) use outcome::{looks_failed, outcome_of};
pub use written::CallArguments;

/// One thing that happened in a recorded run.
#[derive(Clone, Debug, PartialEq)]
pub enum TrajectoryEvent {
    /// The model asks for a tool.
    Tool {
        /// The provider's id of the call, where it was recorded.
        id: Option<String>,
        /// The tool's name as the model gave it.
        name: String,
        /// The arguments.
        args: CallArguments,
    },
    /// The result of a call.
    ToolResult {
        /// The id of the call that it answers, where it was recorded.
        id: Option<String>,
        /// The tool.
        name: String,
        /// How it went: as recorded, or as `ok` and the text's own words say.
        outcome: CallOutcome,
        /// What the model reads.
        text: String,
    },
    /// A streamed piece of the model's answer.
    Text(String),
    /// One whole assistant message: it repeats the pieces before it, or stands alone.
    Assistant(String),
    /// A message of the person.
    User(String),
    /// A model call begins.
    Turn,
    /// Tokens of one model call.
    Usage {
        /// Tokens read.
        input: u64,
        /// Tokens generated.
        output: u64,
    },
    /// The time, in milliseconds since any fixed point.
    Clock(u64),
    /// Something without effect: a thought, a citation.
    Other(String),
    /// A new request of the person.
    Reset,
    /// The caller saw the verdict and grants a recovery turn.
    Recover,
    /// Loop detection is off from here on.
    Disable,
}

impl TrajectoryEvent {
    /// A call with arguments as they are sent: a JSON object, or what should have been one.
    pub fn tool(name: impl Into<String>, written: &str) -> Self {
        Self::Tool { id: None, name: name.into(), args: CallArguments::parse(written) }
    }

    /// A result whose outcome is told by `ok` and the words of the text.
    pub fn result(name: impl Into<String>, ok: bool, text: impl Into<String>) -> Self {
        let text = text.into();
        Self::ToolResult { id: None, name: name.into(), outcome: outcome_of(ok, &text), text }
    }

    /// What the stop engine sees of it.
    pub fn observation(&self) -> Observation<'_> {
        match self {
            Self::Tool { name, args, .. } => Observation::ToolCall { name, arguments: args.arguments(), spec: None },
            Self::ToolResult { name, outcome, text, .. } => Observation::ToolResult { name, outcome: *outcome, text },
            Self::Text(text) => Observation::Text(text),
            Self::Assistant(text) => Observation::Assistant { text, nudged: false },
            Self::User(text) => Observation::User(text),
            Self::Turn => Observation::Step,
            Self::Usage { input, output } => Observation::Usage { input: *input, output: *output },
            Self::Clock(ms) => Observation::Clock(*ms),
            Self::Other(_) => Observation::Other,
            Self::Reset => Observation::Reset,
            Self::Recover => Observation::Recover,
            Self::Disable => Observation::Disable,
        }
    }

    /// The arguments of a call.
    pub fn arguments(&self) -> Option<&Arguments> {
        match self {
            Self::Tool { args, .. } => Some(args.arguments()),
            _ => None,
        }
    }

    /// The event as its line, without the line break.
    pub fn to_line(&self) -> String {
        // Strings, numbers and raw JSON that was read as such: nothing in it can fail to be written.
        serde_json::to_string(self).expect("an event has no map with other keys than strings")
    }
}
