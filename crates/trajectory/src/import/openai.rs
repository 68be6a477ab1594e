//! Imports messages in the format of OpenAI's chat completions.
//!
//! Source: OpenAI, API reference, "Create chat completion": `messages`, `tool_calls`, and the older `function_call`.
//! There, arguments are JSON as text. The second version of tau-bench writes them as objects.

use serde_json::Value;

use super::content::list;
use super::recorder::Recorder;
use super::{field, text_of};
use crate::event::CallArguments;

/// Records one message. Returns the kinds of the parts that were skipped.
///
/// # Errors
/// Why the message is no message.
pub(super) fn message(recorder: &mut Recorder, message: &Value) -> Result<Vec<String>, String> {
    match field(message, "role") {
        "system" | "developer" => {}
        "user" => recorder.user(text_of(message.get("content"))),
        "assistant" | "model" => return Ok(assistant(recorder, message)),
        "tool" | "function" => result(recorder, message),
        "" => return Err("has no `role`".into()),
        role => return Err(format!("there is no role `{role}`; there are system, user, assistant, tool")),
    }
    Ok(Vec::new())
}

fn assistant(recorder: &mut Recorder, message: &Value) -> Vec<String> {
    recorder.turn();
    if let Some(usage) = message.get("usage") {
        let tokens = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
        recorder.usage(tokens("prompt_tokens"), tokens("completion_tokens"));
    }
    for name in ["reasoning_content", "reasoning", "thought"] {
        recorder.thought(field(message, name).to_owned());
    }
    let mut skipped = Vec::new();
    if message.get("tool_calls").is_some_and(|calls| !calls.is_array() && !calls.is_null()) {
        skipped.push("`tool_calls` must be a list".into());
    }
    let calls = list(message, "tool_calls");
    let older = message.get("function_call").filter(|call| call.is_object());
    recorder.assistant(text_of(message.get("content")), !calls.is_empty() || older.is_some());
    for call in calls.iter().chain(older) {
        // A custom tool has text instead of arguments.
        let function = call.get("function").or_else(|| call.get("custom")).unwrap_or(call);
        let Some(name) = function.get("name").and_then(Value::as_str) else {
            skipped.push("a call has no `name`".into());
            continue;
        };
        let args = match function.get("arguments").or_else(|| function.get("input")) {
            None | Some(Value::Null) => CallArguments::parse(""),
            Some(Value::String(written)) => CallArguments::parse(written),
            Some(object) => CallArguments::parse(&object.to_string()),
        };
        recorder.call(call.get("id").and_then(Value::as_str).map(str::to_owned), name.to_owned(), args);
    }
    skipped
}

fn result(recorder: &mut Recorder, message: &Value) {
    let word = |name: &str| message.get(name).and_then(Value::as_str);
    let failed = ["is_error", "error"].iter().find_map(|name| message.get(name)?.as_bool());
    let id = word("tool_call_id").or_else(|| word("id"));
    recorder.result(id, word("name"), failed.map(|failed| !failed), text_of(message.get("content")));
}
