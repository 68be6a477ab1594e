//! Recordings made from the transcripts of other programs, and from Belay's own runs.
//!
//! The importer reads message lists as OpenAI's and Anthropic's APIs take them (a JSON array, `{"messages":[…]}`, or one
//! message or conversation a line), `.traj` files of SWE-agent, `.traj.json` files of mini-swe-agent, and result files of
//! tau-bench. It recognises the form by the content. System messages are left out, since they describe no event of the
//! run. A message of the person after an answer begins a new request.

mod anthropic;
mod document;
mod mini_swe_agent;
mod openai;
mod own;
mod swe_agent;
mod talk;

use serde_json::Value;
use thiserror::Error;

use crate::event::TrajectoryEvent;
use document::Conversation;

pub use own::from_messages;

/// A form of transcripts that other programs write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Messages as OpenAI's chat completions take them: `tool_calls`, and the role `tool`.
    Openai,
    /// Messages as Anthropic's messages API takes them: blocks `tool_use`, `tool_result`, `text`, `thinking`.
    Anthropic,
    /// A `.traj` file of SWE-agent: `trajectory` with `action`, `observation`, `thought`; or `history`.
    SweAgent,
    /// A `.traj.json` file of mini-swe-agent: `info`, `messages`, `trajectory_format`.
    MiniSweAgent,
    /// A result file of tau-bench: entries with `traj` (or, in its second version, `simulations` with `messages`).
    TauBench,
}

impl Format {
    /// Every form.
    pub const ALL: &'static [Self] =
        &[Self::Openai, Self::Anthropic, Self::SweAgent, Self::MiniSweAgent, Self::TauBench];

    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Anthropic => "anthropic",
            Self::SweAgent => "swe-agent",
            Self::MiniSweAgent => "mini-swe-agent",
            Self::TauBench => "tau-bench",
        }
    }

    /// The form of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.word() == word)
    }

    /// What such a file holds, for messages.
    fn expected(self) -> &'static str {
        match self {
            Self::Openai => "a list of messages with `role` and `content` or `tool_calls`, or {\"messages\":[…]}",
            Self::Anthropic => "a list of messages whose `content` is text or blocks, or {\"messages\":[…]}",
            Self::SweAgent => "an object with `trajectory` (steps with `action` and `observation`) or `history`",
            Self::MiniSweAgent => "an object with `messages`, and `trajectory_format` or `info.exit_status`",
            Self::TauBench => "a list of entries with `traj`, or an object with `simulations`",
        }
    }
}

/// What a file held.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// Its form.
    pub format: Format,
    /// Its conversations, each as a recording; at least one.
    pub trajectories: Vec<Vec<TrajectoryEvent>>,
}

/// Why a file cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImportError {
    /// Not JSON, and not JSON line by line.
    #[error("line {line}, column {column}: not JSON: {what}")]
    NotJson {
        /// From 1.
        line: usize,
        /// From 1, in bytes.
        column: usize,
        /// What the reader of JSON says.
        what: String,
    },
    /// JSON of no known form.
    #[error("no known form: expected {}", Format::ALL.iter().map(|format| format!("{} ({})", format.expected(), format.word())).collect::<Vec<_>>().join("; or "))]
    UnknownForm,
    /// Not of the form that was asked for.
    #[error("this is not {}: expected {}", .0.word(), .0.expected())]
    OtherForm(Format),
    /// A part of it is not as it should be.
    #[error("{place}: {what}")]
    Broken {
        /// Which part.
        place: String,
        /// What is wrong with it.
        what: String,
    },
}

/// Reads a file of another program. `format`: take it for that, whatever it looks like.
///
/// # Errors
/// It is not JSON, of no known form, or broken; the message says where and what was expected.
pub fn import(text: &str, format: Option<Format>) -> Result<Imported, ImportError> {
    let conversations = document::conversations(text)?;
    let found = format.map_or_else(|| detect(&conversations), Ok)?;
    let of = |(index, conversation): (usize, &Conversation)| {
        let read = match (found, conversation) {
            (Format::SweAgent, Conversation::SweAgent(file)) => swe_agent::read(file),
            (Format::MiniSweAgent, Conversation::MiniSweAgent(file)) => mini_swe_agent::read(file),
            (Format::TauBench, Conversation::TauBench(messages)) => openai::read(messages),
            (Format::Openai, Conversation::Messages(messages)) => openai::read(messages),
            (Format::Anthropic, Conversation::Messages(messages)) => anthropic::read(messages),
            _ => return Err(ImportError::OtherForm(found)),
        };
        read.map_err(|broken| match conversations.len() {
            1 => broken.into_error(None),
            _ => broken.into_error(Some(index)),
        })
    };
    let trajectories = conversations.iter().enumerate().map(of).collect::<Result<_, _>>()?;
    Ok(Imported { format: found, trajectories })
}

/// The form of the first conversation; the others of a file are like it.
fn detect(conversations: &[Conversation]) -> Result<Format, ImportError> {
    match conversations.first().ok_or(ImportError::UnknownForm)? {
        Conversation::SweAgent(_) => Ok(Format::SweAgent),
        Conversation::MiniSweAgent(_) => Ok(Format::MiniSweAgent),
        Conversation::TauBench(_) => Ok(Format::TauBench),
        Conversation::Messages(messages) if messages.iter().any(anthropic::is_typical) => Ok(Format::Anthropic),
        Conversation::Messages(_) => Ok(Format::Openai),
    }
}

/// What is wrong with one message of a conversation.
#[derive(Debug, PartialEq, Eq)]
struct Broken {
    /// Its number, from 0.
    index: usize,
    /// What the place is called: message, step.
    what_it_is: &'static str,
    what: String,
}

impl Broken {
    fn into_error(self, conversation: Option<usize>) -> ImportError {
        let of = conversation.map(|index| format!("conversation {index}, ")).unwrap_or_default();
        ImportError::Broken { place: format!("{of}{} {}", self.what_it_is, self.index), what: self.what }
    }
}

/// Text of a content: a string, or the texts of its parts. Pictures and the like have none.
fn text_of(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| part.as_str().or_else(|| part.get("text")?.as_str()));
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// A string field; empty when there is none.
fn field<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
