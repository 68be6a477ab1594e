//! Imports messages in the format of OpenAI's chat completions.
//!
//! Source: OpenAI, API reference, "Create chat completion": `messages`, `tool_calls`, and the older `function_call`.
//! There, arguments are JSON as text. The second version of tau-bench writes them as objects.

use serde_json::Value;

use super::content::{field, list, text_or_json};
use super::parts;
use super::recorder::Recorder;
use crate::event::CallArguments;

/// Records one message. Parts that have no event are counted as skipped.
///
/// # Errors
/// Why the message is no message.
pub(super) fn message(recorder: &mut Recorder, message: &Value) -> Result<(), String> {
    match field(message, "role") {
        "system" | "developer" => {}
        "user" => {
            if !parts::user(recorder, message.get("content")) {
                recorder.user(String::new());
            }
        }
        "assistant" | "model" => assistant(recorder, message),
        "tool" if parts::holds_result(message.get("content")) => {
            parts::user(recorder, message.get("content"));
        }
        "tool" | "function" | "toolResult" | "tool_result" => result(recorder, message),
        "" => return Err("has no `role`".into()),
        role => return Err(format!("there is no role `{role}`; there are system, user, assistant, tool")),
    }
    Ok(())
}

fn assistant(recorder: &mut Recorder, message: &Value) {
    recorder.turn();
    if let Some(usage) = message.get("usage") {
        let tokens = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
        recorder.usage(tokens("prompt_tokens"), tokens("completion_tokens"));
    }
    for name in ["reasoning_content", "reasoning", "thought"] {
        recorder.thought(field(message, name).to_owned());
    }
    if message.get("tool_calls").is_some_and(|calls| !calls.is_array() && !calls.is_null()) {
        recorder.skip("`tool_calls` must be a list");
    }
    let calls = list(message, "tool_calls");
    let older = message.get("function_call").filter(|call| call.is_object());
    // A model that refuses has the text in another field.
    let content = message.get("content").filter(|content| !content.is_null()).or_else(|| message.get("refusal"));
    parts::answer(recorder, content, "\n", !calls.is_empty() || older.is_some());
    for call in calls.iter().chain(older) {
        // A custom tool has text instead of arguments.
        let function = call.get("function").or_else(|| call.get("custom")).unwrap_or(call);
        let Some(name) = function.get("name").and_then(Value::as_str) else {
            recorder.skip("a call has no `name`");
            continue;
        };
        let args = match function.get("arguments").or_else(|| function.get("input")) {
            None | Some(Value::Null) => CallArguments::parse(""),
            Some(Value::String(written)) => CallArguments::parse(written),
            Some(object) => CallArguments::parse(&object.to_string()),
        };
        recorder.call(call.get("id").and_then(Value::as_str).map(str::to_owned), name.to_owned(), args);
    }
}

fn result(recorder: &mut Recorder, message: &Value) {
    let word = |names: &[&str]| names.iter().find_map(|name| message.get(*name)?.as_str());
    let failed = ["is_error", "isError", "error"].iter().find_map(|name| message.get(*name)?.as_bool());
    let (id, name) = (word(&["tool_call_id", "toolCallId", "id"]), word(&["name", "toolName"]));
    recorder.result(id, name, failed.map(|failed| !failed), text_or_json(message.get("content")));
}
