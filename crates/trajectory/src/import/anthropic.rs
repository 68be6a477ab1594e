//! Imports messages in the format of Anthropic's Messages API, and session logs that wrap them.
//!
//! Source: Anthropic, API reference, "Messages": content blocks `text`, `thinking`, `tool_use`, `tool_result` with
//! `is_error`; server tools have blocks of their own whose names end in `_tool_use` and `_tool_result`.

use belay_agent_loop::policies::CallOutcome;
use serde_json::Value;

use super::content::named;
use super::recorder::Recorder;
use super::{field, text_of};
use crate::event::CallArguments;

/// The beginnings of results that say that a person, or a rule of theirs, refused the call.
const REJECTED: &[&str] =
    &["The user doesn't want to proceed", "The user doesn't want to take this action", "Permission to use "];

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
        "user" => user(recorder, message.get("content")),
        "assistant" => {
            let id = message.get("id").and_then(Value::as_str);
            if id.is_none() || id != answer_id.as_deref() {
                recorder.turn();
                usage(recorder, message.get("usage"));
            }
            *answer_id = id.map(str::to_owned);
            assistant(recorder, message.get("content"));
        }
        "system" => {}
        "" => return Err("has no `role`".into()),
        role => return Err(format!("there is no role `{role}`; there are user and assistant")),
    }
    Ok(())
}

fn blocks(content: Option<&Value>) -> &[Value] {
    content.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Imports the results of calls, and text of the person beside them.
fn user(recorder: &mut Recorder, content: Option<&Value>) {
    let mut said = Vec::new();
    for block in blocks(content) {
        if field(block, "type").ends_with("tool_result") {
            let failed = block.get("is_error").and_then(Value::as_bool).unwrap_or(false);
            result(recorder, block, failed);
        } else {
            said.extend(block.get("text").and_then(Value::as_str).map(str::to_owned).or_else(|| named(block)));
        }
    }
    let text = match content {
        Some(Value::String(text)) => text.clone(),
        _ => said.join("\n"),
    };
    if !text.is_empty() {
        recorder.user(text);
    }
}

fn result(recorder: &mut Recorder, block: &Value, failed: bool) {
    let text = match block.get("content") {
        Some(Value::Object(content)) => Value::Object(content.clone()).to_string(),
        content => text_of(content),
    };
    let id = block.get("tool_use_id").and_then(Value::as_str);
    if failed && REJECTED.iter().any(|beginning| text.starts_with(beginning)) {
        return recorder.result_with_outcome(id, None, CallOutcome::Denied, text);
    }
    recorder.result(id, None, Some(!failed), text);
}

fn assistant(recorder: &mut Recorder, content: Option<&Value>) {
    let asks = |block: &Value| field(block, "type").ends_with("tool_use");
    let with_calls = blocks(content).iter().any(asks);
    let only_thoughts =
        !blocks(content).is_empty() && blocks(content).iter().all(|block| field(block, "type").ends_with("thinking"));
    for block in blocks(content) {
        recorder.thought(field(block, "thinking").to_owned());
    }
    let text = match content {
        Some(Value::String(text)) => text.clone(),
        _ => blocks(content).iter().map(|block| field(block, "text")).collect(),
    };
    if !only_thoughts {
        recorder.assistant(text, with_calls);
    }
    for block in blocks(content) {
        if asks(block) {
            let name = block.get("name").and_then(Value::as_str).unwrap_or("unknown");
            let args = block.get("input").map_or_else(String::new, Value::to_string);
            let id = block.get("id").and_then(Value::as_str).map(str::to_owned);
            recorder.call(id, name.to_owned(), CallArguments::parse(&args));
        } else if field(block, "type").ends_with("tool_result") {
            // A server tool has its result in the same answer. A failure is an object with an error code.
            result(recorder, block, block.pointer("/content/error_code").is_some());
        }
    }
}

fn usage(recorder: &mut Recorder, usage: Option<&Value>) {
    let tokens = |name: &str| usage.and_then(|usage| usage.get(name)?.as_u64()).unwrap_or(0);
    let read = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"]
        .iter()
        .fold(0_u64, |sum, name| sum.saturating_add(tokens(name)));
    recorder.usage(read, tokens("output_tokens"));
}
