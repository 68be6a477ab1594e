//! One event of a recorded trajectory, and its serialised line.
//!
//! There are thirteen forms. Each line is one JSON object with one event:
//!
//! ```text
//! {"tool":{"name":"read_file","args":{"path":"a.txt"}}}     {"tool_result":{"name":"read_file","ok":false,"text":"…"}}
//! {"text":"one streamed piece"}   {"assistant":"whole"}     {"user":"…"}   {"other":"a thought, a citation"}
//! {"turn":true}  {"usage":{"input":812,"output":64}}  {"clock_ms":1500}  {"reset":true}  {"recover":true}  {"disable":true}
//! {"other":"compacted","compacted":{"before":90000,"after":4000}}
//! ```
//!
//! The parser is lenient where that is harmless: `ok` is true unless the line says otherwise, `args` may be any JSON (a
//! string is taken as the text that the model wrote), unknown fields are ignored. It is strict where a mistake would
//! change the meaning: a line without an event, or with two, is refused. The one exception is `compacted`, the youngest
//! form: it is written beside an `other`, which a program that does not know it reads.

use belay_agent_loop::policies::{CallOutcome, Observation};
use belay_protocol::Arguments;

mod line;
mod outcome;
mod writing;
mod written;

pub(crate) use line::Fault;
pub use line::is_event_name;
pub(crate) use outcome::{looks_failed, outcome_of};
pub use written::CallArguments;

/// One event of a recorded run.
#[derive(Clone, Debug, PartialEq)]
pub enum TrajectoryEvent {
    /// The model calls a tool.
    Tool {
        /// The provider's id of the call, if it was recorded.
        id: Option<String>,
        /// The tool's name as the model gave it.
        name: String,
        /// The arguments.
        args: CallArguments,
    },
    /// The result of a call.
    ToolResult {
        /// The id of the answered call, if it was recorded.
        id: Option<String>,
        /// The tool.
        name: String,
        /// The outcome: as recorded, or derived from `ok` and the text.
        outcome: CallOutcome,
        /// The text that the model reads.
        text: String,
    },
    /// A streamed piece of the model's answer.
    Text(String),
    /// One complete assistant message. It repeats the pieces before it, or comes without pieces.
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
    /// An event without effect: a thought, a citation.
    Other(String),
    /// The context was shortened: the model no longer has the earlier results.
    Compacted {
        /// Tokens of the context before; 0: unknown.
        before: u64,
        /// Tokens after; 0: unknown.
        after: u64,
    },
    /// A new request of the person.
    Reset,
    /// The caller has handled the verdict and grants a recovery turn.
    Recover,
    /// Turns loop detection off from here on.
    Disable,
}

impl TrajectoryEvent {
    /// Makes a call with arguments as they are sent: a JSON object, or text that should be one.
    pub fn tool(name: impl Into<String>, written: &str) -> Self {
        Self::Tool { id: None, name: name.into(), args: CallArguments::parse(written) }
    }

    /// Makes a result whose outcome is derived from `ok` and the text.
    pub fn result(name: impl Into<String>, ok: bool, text: impl Into<String>) -> Self {
        let text = text.into();
        Self::ToolResult { id: None, name: name.into(), outcome: outcome_of(ok, &text), text }
    }

    /// The observation for the stop engine.
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
            Self::Compacted { before, after } => Observation::Compacted { before: *before, after: *after },
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

    /// Serialises the event as its line, without the line break.
    pub fn to_line(&self) -> String {
        // Strings, numbers, and raw JSON that was parsed before: serialising them cannot fail.
        serde_json::to_string(self).expect("an event has no map with other keys than strings")
    }
}
