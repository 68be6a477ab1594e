//! Background requests of front ends: titles, tags, follow-up questions, search queries and completions while typing.
//! Front ends send them to the model of the chat, often with the text of the chat in them, and nothing in the protocol
//! marks them. As runs of an agent they would be conversations of nobody, with tools and questions that no person sees.
//!
//! One row for each front end; `docs/reference/clients.md` has the same table with the version and the source of each.

use belay_protocol::inbound::{HistoryLine, HistoryRole};

/// The place of a template in a background request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// The request is one message of the user that begins with it, and does not stream.
    OneMessage,
    /// The last message of the user begins with it, after the messages of the chat, and the request does not stream.
    LastMessage,
    /// The first message is a system message that begins with it, and no answer follows. A person does not write system
    /// messages, so a stream counts as well.
    Instruction,
}

/// A template of a front end.
struct Row {
    /// The front end; for readers of the table and of the log.
    front_end: &'static str,
    shape: Shape,
    begins: &'static str,
    /// The beginning of another template that is a chat.
    but_not: &'static str,
}

/// What Open WebUI puts around a person's message with files. It is no background request.
const OPEN_WEBUI_FILES: &str = "### Task:\nRespond to the user query";

const ROWS: &[Row] = &[
    row("Open WebUI", Shape::OneMessage, "### Task:", OPEN_WEBUI_FILES),
    row("Open WebUI", Shape::OneMessage, "Your task is to reflect the speaker's likely facial expression", ""),
    row("LibreChat", Shape::OneMessage, "Provide a concise, 5-word-or-less title for the conversation", ""),
    row("LibreChat", Shape::OneMessage, "Analyze this conversation and provide:\n1. The detected language", ""),
    row("NextChat", Shape::LastMessage, "Please generate a four to five word title summarizing our conversation", ""),
    row("LobeChat", Shape::Instruction, "You are a professional conversation summarizer. Generate a concise title", ""),
    row("Cherry Studio", Shape::Instruction, "You are an assistant skilled in conversation. You need to summarize", ""),
    row("opencode", Shape::Instruction, "You are a title generator. You output ONLY a thread title.", ""),
];

const fn row(front_end: &'static str, shape: Shape, begins: &'static str, but_not: &'static str) -> Row {
    Row { front_end, shape, begins, but_not }
}

impl Row {
    fn fits(&self, lines: &[HistoryLine], streams: bool) -> bool {
        let is = |line: &HistoryLine, role| line.role == role && self.is_template(line.text.trim_start());
        match (self.shape, lines) {
            (Shape::OneMessage, [line]) => !streams && is(line, HistoryRole::User),
            (Shape::LastMessage, [.., line]) => !streams && is(line, HistoryRole::User),
            (Shape::Instruction, [first, rest @ ..]) => {
                let is_asked = |line: &HistoryLine| matches!(line.role, HistoryRole::System | HistoryRole::User);
                is(first, HistoryRole::System) && rest.iter().all(is_asked)
            }
            _ => false,
        }
    }

    fn is_template(&self, text: &str) -> bool {
        text.starts_with(self.begins) && (self.but_not.is_empty() || !text.starts_with(self.but_not))
    }
}

/// The front end whose background request this is; `None`: it is a chat. The request has no tools.
pub(super) fn background_of(lines: &[HistoryLine], streams: bool) -> Option<&'static str> {
    ROWS.iter().find(|row| row.fits(lines, streams)).map(|row| row.front_end)
}
