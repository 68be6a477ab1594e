//! Cleans the model's final text for a person, and defines the notices that are appended to it. Pure.

pub mod silence;

use belay_agent_loop::intent::without_left_calls;
use belay_protocol::{FinishReason, StopReason};

use self::silence::{is_silent, without_trailing};

pub use self::silence::SILENT_TOKEN;

/// Appended to an answer that reached its length limit.
const CUT_OFF: &str = "\n\n[cut off: the answer reached its length limit]";
/// Appended to an answer of which the provider's content filter withheld a part.
const WITHHELD: &str = "\n\n[the model provider withheld the rest]";
/// Appended to an answer whose server did not say why it ended.
const PERHAPS_CUT: &str = "\n\n[perhaps cut off: the model server ended the answer without saying why]";
/// Appended to the text of a run that was stopped, for the model and for people.
pub const CUT_SHORT: &str = "\n\n[cut off: the run was stopped here]";

/// Why a text with this finish reason is incomplete, and the note to append; `None` and an empty note if it is complete.
pub fn cut_note(finish: FinishReason) -> (Option<StopReason>, &'static str) {
    match finish {
        FinishReason::Length => (Some(StopReason::LengthLimit), CUT_OFF),
        FinishReason::ContentFilter => (Some(StopReason::ContentFilter), WITHHELD),
        FinishReason::Unsaid => (None, PERHAPS_CUT),
        FinishReason::Stop | FinishReason::ToolCalls => (None, ""),
    }
}

/// A cleaned final text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Text to show.
    Text(String),
    /// The model chose to say nothing.
    Silent,
    /// The model produced nothing.
    Empty,
    /// Only echoes of internal tool-call text were left.
    OnlyEchoes,
}

/// Cleans a final text: recognises the silent token, removes it at the end of a text, and removes tool calls at the end
/// of a text and lines that echo internal tool-call text.
pub fn shape(text: &str) -> Reply {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Reply::Empty;
    }
    if is_silent(trimmed) {
        return Reply::Silent;
    }
    let cleaned = without_echoes(without_trailing(without_left_calls(trimmed)));
    if cleaned.is_empty() { Reply::OnlyEchoes } else { Reply::Text(cleaned) }
}

/// Removes lines that models copy from recorded calls: `[called tool x …]`, `[tool x returned: …]`. Lines in fenced
/// code are quotations and stay.
fn without_echoes(text: &str) -> String {
    kept_lines(text, &mut false).trim().to_owned()
}

/// The part of an answer after the first `read_to` bytes of its raw text, which people have read: the rest of that
/// text, cleaned, and anything appended to it. `None`: the answer is another text.
///
/// A comparison of the cleaned answer with the raw text is not possible: the cleaned one may lack line ends and whole
/// lines.
pub fn behind(raw: &str, read_to: usize, answer: &str) -> Option<String> {
    let Reply::Text(whole) = shape(raw) else { return None };
    let added = answer.strip_prefix(&whole)?;
    let (read, rest) = raw.split_at_checked(read_to)?;
    let mut fenced = false;
    kept_lines(read, &mut fenced);
    Some(kept_lines(without_trailing(rest), &mut fenced).trim_end().to_owned() + added)
}

/// The lines that are not echoes. `fenced`: whether the text begins in fenced code; updated to its end.
fn kept_lines(text: &str, fenced: &mut bool) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~") {
            *fenced = !*fenced;
        }
        if *fenced || !is_echo(line) {
            kept.push(line);
        }
    }
    kept.join("\n")
}

fn is_echo(line: &str) -> bool {
    let Some(inner) = line.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else { return false };
    let inner = inner.to_lowercase();
    inner.starts_with("called tool ") || (inner.starts_with("tool ") && inner.contains(" returned:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Reply {
        Reply::Text(text.into())
    }

    #[test]
    fn final_texts_are_cleaned() {
        for (input, expected) in [
            ("  hello \n", text("hello")),
            ("", Reply::Empty),
            (" \n\t", Reply::Empty),
            ("NO_REPLY", Reply::Silent),
            (" NO_REPLY. ", Reply::Silent),
            ("`NO_REPLY`", Reply::Silent),
            ("NO_REPLY is the silent token", text("NO_REPLY is the silent token")),
            ("NO_REPLY\n\nNO_REPLY", Reply::Silent),
            ("It is noon.\n\nNO_REPLY", text("It is noon.")),
            ("[Called tool clock with {}]\nIt is noon.", text("It is noon.")),
            ("[Tool clock returned: 12:00]", Reply::OnlyEchoes),
            ("It is noon.\n<tool_call>{}</tool_call>", text("It is noon.")),
            ("[TOOL_CALLS][{}]", Reply::OnlyEchoes),
            ("[1] a footnote", text("[1] a footnote")),
            ("[called the office]", text("[called the office]")),
            ("```\n[called tool x]\n```", text("```\n[called tool x]\n```")),
        ] {
            assert_eq!(shape(input), expected, "{input:?}");
        }
    }
}
