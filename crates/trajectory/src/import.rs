//! Makes recordings from the transcripts of other programs and from Belay's own runs.
//!
//! The importer reads message lists in the formats of OpenAI's and Anthropic's APIs (a JSON array, `{"messages":[…]}`,
//! or one message or conversation on each line), `.traj` files of SWE-agent, `.traj.json` files of mini-swe-agent, and
//! result files of tau-bench. It recognises the format by the content. System messages are left out, because they are
//! not events of the run. A message of the person after an answer begins a new request.

mod anthropic;
mod document;
mod mini_swe_agent;
mod openai;
mod own;
mod recorder;
mod swe_agent;

use serde_json::Value;
use thiserror::Error;

use crate::event::TrajectoryEvent;
use document::Conversation;

pub use own::from_messages;

/// A transcript format of other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Messages in the format of OpenAI's chat completions: `tool_calls`, and the role `tool`.
    Openai,
    /// Messages in the format of Anthropic's Messages API: blocks `tool_use`, `tool_result`, `text`, `thinking`.
    Anthropic,
    /// A `.traj` file of SWE-agent: `trajectory` with `action`, `observation`, `thought`; or `history`.
    SweAgent,
    /// A `.traj.json` file of mini-swe-agent: `info`, `messages`, `trajectory_format`.
    MiniSweAgent,
    /// A result file of tau-bench: entries with `traj` (or, in its second version, `simulations` with `messages`).
    TauBench,
}

impl Format {
    /// Every format.
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

    /// The format with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.word() == word)
    }

    /// The expected content of such a file, for error messages.
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

/// The result of an import.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The format of the file.
    pub format: Format,
    /// Its conversations, each as a recording. At least one.
    pub trajectories: Vec<Vec<TrajectoryEvent>>,
}

/// Why a file cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImportError {
    /// The file is neither JSON nor JSON Lines.
    #[error("line {line}, column {column}: not JSON: {what}")]
    NotJson {
        /// The line, from 1.
        line: usize,
        /// The column, from 1, in bytes.
        column: usize,
        /// The message of the JSON parser.
        what: String,
    },
    /// The file is JSON of an unknown format.
    #[error("no known form: expected {}", Format::ALL.iter().map(|format| format!("{} ({})", format.expected(), format.word())).collect::<Vec<_>>().join("; or "))]
    UnknownForm,
    /// The file does not have the requested format.
    #[error("this is not {}: expected {}", .0.word(), .0.expected())]
    OtherForm(Format),
    /// A part of the file is invalid.
    #[error("{place}: {what}")]
    Broken {
        /// The position of the part.
        place: String,
        /// The problem.
        what: String,
    },
}

/// Imports a file of another program. `format`: the format to assume instead of recognising it.
///
/// # Errors
/// The file is not JSON, has no known format, or is invalid. The message contains the position and the expected
/// content.
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

/// The format of the first conversation. The others in a file have the same format.
fn detect(conversations: &[Conversation]) -> Result<Format, ImportError> {
    match conversations.first().ok_or(ImportError::UnknownForm)? {
        Conversation::SweAgent(_) => Ok(Format::SweAgent),
        Conversation::MiniSweAgent(_) => Ok(Format::MiniSweAgent),
        Conversation::TauBench(_) => Ok(Format::TauBench),
        Conversation::Messages(messages) if messages.iter().any(anthropic::is_typical) => Ok(Format::Anthropic),
        Conversation::Messages(_) => Ok(Format::Openai),
    }
}

/// An invalid message of a conversation.
#[derive(Debug, PartialEq, Eq)]
struct InvalidItem {
    /// Its number, from 0.
    index: usize,
    /// The kind of item: message, step.
    item_kind: &'static str,
    what: String,
}

impl InvalidItem {
    fn into_error(self, conversation: Option<usize>) -> ImportError {
        let of = conversation.map(|index| format!("conversation {index}, ")).unwrap_or_default();
        ImportError::Broken { place: format!("{of}{} {}", self.item_kind, self.index), what: self.what }
    }
}

/// The text of a content: a string, or the texts of its parts. Pictures and similar parts have none.
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

/// A string field; empty if it is missing.
fn field<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
