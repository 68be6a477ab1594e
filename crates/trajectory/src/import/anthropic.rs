//! Imports messages in the format of Anthropic's Messages API, and session logs that wrap them.
//!
//! Source: Anthropic, API reference, "Messages": content blocks `text`, `thinking`, `tool_use`, `tool_result` with
//! `is_error`; server tools have blocks of their own whose names end in `_tool_use` and `_tool_result`.

use serde_json::Value;

use super::recorder::Recorder;
use super::{InvalidItem, field, text_of};
use crate::event::{CallArguments, TrajectoryEvent};

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

/// Imports one conversation.
pub(super) fn read(messages: &[Value]) -> Result<Vec<TrajectoryEvent>, InvalidItem> {
    let mut recorder = Recorder::default();
    let mut last_id = None;
    for (index, message) in messages.iter().enumerate() {
        let invalid = |what: String| InvalidItem { index, item_kind: "message", what };
        match field(message, "role") {
            "user" => user(&mut recorder, message.get("content")),
            "assistant" => {
                // Session logs write each block of an answer on a line of its own, with the same id.
                let id = message.get("id").and_then(Value::as_str);
                if id.is_none() || id != last_id {
                    recorder.turn();
                    usage(&mut recorder, message.get("usage"));
                }
                last_id = id;
                assistant(&mut recorder, message.get("content")).map_err(invalid)?;
            }
            "system" => {}
            "" => return Err(invalid("has no `role`".into())),
            role => return Err(invalid(format!("there is no role `{role}`; there are user and assistant"))),
        }
    }
    Ok(recorder.done())
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
            said.push(field(block, "text"));
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
    recorder.result(block.get("tool_use_id").and_then(Value::as_str), None, Some(!failed), text);
}

fn assistant(recorder: &mut Recorder, content: Option<&Value>) -> Result<(), String> {
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
            let name = block.get("name").and_then(Value::as_str).ok_or("a `tool_use` has no `name`")?;
            let args = block.get("input").map_or_else(String::new, Value::to_string);
            let id = block.get("id").and_then(Value::as_str).map(str::to_owned);
            recorder.call(id, name.to_owned(), CallArguments::parse(&args));
        } else if field(block, "type").ends_with("tool_result") {
            // A server tool has its result in the same answer. A failure is an object with an error code.
            result(recorder, block, block.pointer("/content/error_code").is_some());
        }
    }
    Ok(())
}

fn usage(recorder: &mut Recorder, usage: Option<&Value>) {
    let tokens = |name: &str| usage.and_then(|usage| usage.get(name)?.as_u64()).unwrap_or(0);
    let read = tokens("input_tokens") + tokens("cache_read_input_tokens") + tokens("cache_creation_input_tokens");
    recorder.usage(read, tokens("output_tokens"));
}
