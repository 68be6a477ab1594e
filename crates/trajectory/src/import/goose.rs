//! Reads sessions of Goose.
//!
//! Source: block/goose, `crates/goose/src/session` and its documentation of sessions: `goose session export --format
//! json` prints an object with `conversation`; until 2025 a session was a file with one message a line, behind a line of
//! metadata. A message has `role`, `created` and blocks: `text`, `thinking`, `toolRequest`, `toolResponse`.

use serde_json::Value;

use super::Reads;
use super::content::{field, list, named, text_or_json};
use super::parts::kind_of;
use super::tape::Tape;
use crate::event::CallArguments;

/// Whether a value is a session or a message with a block that only this format has.
pub(super) fn is_typical(value: &Value) -> bool {
    let is_own = |block: &Value| matches!(field(block, "type"), "toolRequest" | "toolResponse" | "frontendToolRequest");
    value.get("conversation").is_some_and(Value::is_array)
        || (value.get("role").is_some() && list(value, "content").iter().any(is_own))
        || (value.get("working_dir").is_some() && value.get("description").is_some())
}

/// Reads sessions.
#[derive(Default)]
pub(super) struct Goose {
    /// The id of the newest answer, which may be written as several messages.
    answer_id: Option<String>,
}

impl Reads for Goose {
    fn record(&mut self, record: &Value, tape: &mut Tape) {
        let inner = record.as_array().or_else(|| record.get("conversation")?.as_array());
        if let Some(records) = inner {
            return records.iter().for_each(|record| self.record(record, tape));
        }
        match field(record, "role") {
            "user" => self.message(record, false, tape),
            "assistant" => self.message(record, true, tape),
            "" => tape.skip("session head"),
            role => tape.skip(role),
        }
    }
}

impl Goose {
    fn message(&mut self, message: &Value, is_model: bool, tape: &mut Tape) {
        let id = message.get("id").and_then(Value::as_str).map(str::to_owned);
        let recorder = tape.run("", String::new);
        if is_model && (id.is_none() || id != self.answer_id) {
            recorder.turn();
        }
        if is_model {
            self.answer_id = id;
        }
        let blocks = list(message, "content");
        let with_calls = blocks.iter().any(|block| field(block, "type").ends_with("oolRequest"));
        let mut texts = Vec::new();
        for block in blocks {
            match field(block, "type") {
                "text" => texts.push(field(block, "text").to_owned()),
                "conversationCompacted" => recorder.compacted(0, 0),
                "thinking" => recorder.thought(field(block, "thinking").to_owned()),
                "toolResponse" => {
                    let (ok, text) = result_of(&block["toolResult"]);
                    recorder.result(block.get("id").and_then(Value::as_str), None, ok, text);
                }
                "toolRequest" | "frontendToolRequest" => {}
                _ => match named(block) {
                    Some(name) => texts.push(name),
                    None => recorder.skip(kind_of(block)),
                },
            }
        }
        if message.get("content").is_some_and(|content| !content.is_array()) {
            recorder.skip("content that is no list");
        }
        // Thoughts alone are a piece of an answer.
        let is_answer = is_model && (blocks.is_empty() || !texts.is_empty() || recorder.has_skipped());
        let text = texts.join("\n");
        if is_answer {
            recorder.assistant(text, with_calls);
        } else if !is_model && !text.is_empty() {
            recorder.user(text);
        }
        for block in blocks.iter().filter(|block| field(block, "type").ends_with("oolRequest")) {
            let call = block.pointer("/toolCall/value").unwrap_or(&Value::Null);
            let args = call.get("arguments").map_or_else(String::new, Value::to_string);
            let name = call.get("name").and_then(Value::as_str).unwrap_or("unknown").to_owned();
            let id = block.get("id").and_then(Value::as_str).map(str::to_owned);
            recorder.call(id, name, CallArguments::parse(&args));
        }
    }
}

/// Whether a call succeeded, and its text.
fn result_of(result: &Value) -> (Option<bool>, String) {
    if field(result, "status") == "error" {
        return (Some(false), field(result, "error").to_owned());
    }
    let value = &result["value"];
    let failed = value.get("isError").and_then(Value::as_bool);
    (failed.filter(|failed| *failed).map(|_| false), text_or_json(value.get("content").or(Some(value))))
}
