//! Imports messages in the format of Anthropic's Messages API, and session logs that wrap them.
//!
//! Source: Anthropic, API reference, "Messages": content blocks `text`, `thinking`, `tool_use`, `tool_result` with
//! `is_error`; server tools have blocks of their own whose names end in `_tool_use` and `_tool_result`.

use serde_json::Value;

use super::content::field;
use super::recorder::Recorder;
use super::{openai, parts};

/// Whether a message has a block that exists only in this format.
pub(super) fn is_typical(message: &Value) -> bool {
    let blocks = message.get("content").and_then(Value::as_array);
    blocks.is_some_and(|blocks| {
        blocks.iter().map(|block| field(block, "type")).any(|kind| {
            kind.ends_with("tool_use")
                || kind.ends_with("tool_result")
                || matches!(kind, "thinking" | "redacted_thinking")
        })
    })
}

/// Records one message. `answer_id`: the id of the newest answer. Session logs write each block of an answer on a line
/// of its own, with the same id.
///
/// # Errors
/// Why the message is no message.
pub(super) fn message(recorder: &mut Recorder, message: &Value, answer_id: &mut Option<String>) -> Result<(), String> {
    match field(message, "role") {
        "user" => {
            parts::user(recorder, message.get("content"));
        }
        "assistant" => {
            let id = message.get("id").and_then(Value::as_str);
            if id.is_none() || id != answer_id.as_deref() {
                recorder.turn();
                usage(recorder, message.get("usage"));
            }
            *answer_id = id.map(str::to_owned);
            parts::answer(recorder, message.get("content"), "", false);
        }
        // Other programs write results as messages of a role of their own.
        "tool" | "toolResult" | "tool_result" => return openai::message(recorder, message),
        "system" => {}
        "" => return Err("has no `role`".into()),
        role => return Err(format!("there is no role `{role}`; there are user and assistant")),
    }
    Ok(())
}

fn usage(recorder: &mut Recorder, usage: Option<&Value>) {
    let tokens = |name: &str| usage.and_then(|usage| usage.get(name)?.as_u64()).unwrap_or(0);
    let read = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"]
        .iter()
        .fold(0_u64, |sum, name| sum.saturating_add(tokens(name)));
    recorder.usage(read, tokens("output_tokens"));
}
