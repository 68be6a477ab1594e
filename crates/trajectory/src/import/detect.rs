//! Finds the format of a file by its content.

use serde_json::Value;

use super::content::{field, list};
use super::source::Line;
use super::{
    Format, anthropic, claude_code, codex, gemini, goose, lists, mini_swe_agent, opencode, otel, responses, swe_agent,
};

/// Whether a value can stand alone on a line of a file in one of the formats.
pub(super) fn is_record(value: &Value) -> bool {
    of_document(value).is_some()
}

/// Whether these lines say which format it is.
pub(super) fn is_clear(lines: &[Line]) -> bool {
    lines.iter().any(|line| matches!(line, Line::Value(value) if guess(value).is_some()))
}

/// The format of a file with these first lines.
pub(super) fn of_lines(lines: &[Line]) -> Option<Format> {
    let values = || {
        lines.iter().filter_map(|line| match line {
            Line::Value(value) => Some(value),
            Line::Broken(_) => None,
        })
    };
    values().find_map(guess).or_else(|| values().find_map(of_document))
}

/// The format of these documents.
pub(super) fn of_documents(documents: &[Value]) -> Option<Format> {
    documents.iter().find_map(of_document)
}

fn of_document(document: &Value) -> Option<Format> {
    if let Some(format) = guess(document) {
        return Some(format);
    }
    match document {
        Value::Array(items) if items.iter().any(|item| lists::message(item).is_some()) => Some(Format::Openai),
        Value::Array(items) => items.iter().find_map(of_document),
        Value::Object(object) => object
            .get("messages")
            .and_then(of_document)
            .or_else(|| lists::message(document).is_some().then_some(Format::Openai)),
        _ => None,
    }
}

/// The format of a value that only one format has. `None` for a message that several formats could have.
fn guess(value: &Value) -> Option<Format> {
    if let Value::Array(items) = value {
        // A list has the format of its items, if they tell one.
        return items.iter().find_map(|item| if item.is_array() { None } else { guess(item) });
    }
    if !value.is_object() {
        return None;
    }
    let inner = |key: &str| list(value, key).iter().find_map(guess);
    if mini_swe_agent::is_typical(value) {
        Some(Format::MiniSweAgent)
    } else if opencode::is_typical(value) {
        Some(Format::Opencode)
    } else if gemini::is_typical(value) {
        Some(Format::Gemini)
    } else if swe_agent::is_typical(value) {
        Some(Format::SweAgent)
    } else if ["traj", "simulations"].iter().any(|key| value.get(*key).is_some_and(Value::is_array)) {
        Some(Format::TauBench)
    } else if otel::is_typical(value) {
        Some(Format::Otel)
    } else if codex::is_typical(value) {
        Some(Format::Codex)
    } else if claude_code::is_typical(value) {
        Some(Format::ClaudeCode)
    } else if goose::is_typical(value) {
        Some(Format::Goose)
    } else if responses::is_typical(value) {
        Some(Format::Responses)
    } else if lists::message(value).is_some_and(anthropic::is_typical) {
        Some(Format::Anthropic)
    } else if !field(value, "role").is_empty() {
        None
    } else {
        ["messages", "input", "output"].iter().find_map(|key| inner(key))
    }
}
