//! The model's final text before a person sees it: cleaned, with the notes of ours that are put behind it. Pure.

pub mod silence;

use belay_protocol::{FinishReason, StopReason};

use self::silence::{is_silent, without_trailing};

pub use self::silence::SILENT_TOKEN;

/// Behind an answer that reached its length limit.
const CUT_OFF: &str = "\n\n[cut off: the answer reached its length limit]";
/// Behind an answer of which the provider's content filter withheld a part.
const WITHHELD: &str = "\n\n[the model provider withheld the rest]";
/// Behind the text of a run that was stopped, for the model and for people.
pub const CUT_SHORT: &str = "\n\n[cut off: the run was stopped here]";

/// Why a text that ended so is not whole, and the note behind it; `None` and nothing where it is whole.
pub fn cut_note(finish: FinishReason) -> (Option<StopReason>, &'static str) {
    match finish {
        FinishReason::Length => (Some(StopReason::LengthLimit), CUT_OFF),
        FinishReason::ContentFilter => (Some(StopReason::ContentFilter), WITHHELD),
        FinishReason::Stop | FinishReason::ToolCalls => (None, ""),
    }
}

/// A final text, ready for the person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To be shown.
    Text(String),
    /// The model chose to say nothing.
    Silent,
    /// The model produced nothing.
    Empty,
    /// Nothing was left but echoes of internal tool-call text.
    OnlyEchoes,
}

/// Cleans a final text: silence is recognised, and taken away at the end of a text; lines that are echoes of internal
/// tool-call text are removed.
pub fn shape(text: &str) -> Reply {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Reply::Empty;
    }
    if is_silent(trimmed) {
        return Reply::Silent;
    }
    let cleaned = without_echoes(without_trailing(trimmed));
    if cleaned.is_empty() { Reply::OnlyEchoes } else { Reply::Text(cleaned) }
}

/// Removes lines that models copy from the way calls are recorded: `[called tool x …]`, `[tool x returned: …]`. Lines in
/// fenced code stay: there somebody quotes them.
fn without_echoes(text: &str) -> String {
    kept_lines(text, &mut false).trim().to_owned()
}

/// What of an answer is behind a part of its raw text that people have read already: the rest of that text, cleaned, and
/// what was added to it. `None`: the answer is another text.
///
/// The cleaned answer cannot be compared with the raw text: line ends and lines within it may be gone.
pub fn behind(raw: &str, read_to: usize, answer: &str) -> Option<String> {
    let Reply::Text(whole) = shape(raw) else { return None };
    let added = answer.strip_prefix(&whole)?;
    let (read, rest) = raw.split_at_checked(read_to)?;
    let mut fenced = false;
    kept_lines(read, &mut fenced);
    Some(kept_lines(without_trailing(rest), &mut fenced).trim_end().to_owned() + added)
}

/// The lines that are no echoes. `fenced`: whether the text begins, and then ends, in fenced code.
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
            ("[1] a footnote", text("[1] a footnote")),
            ("[called the office]", text("[called the office]")),
            ("```\n[called tool x]\n```", text("```\n[called tool x]\n```")),
        ] {
            assert_eq!(shape(input), expected, "{input:?}");
        }
    }
}
