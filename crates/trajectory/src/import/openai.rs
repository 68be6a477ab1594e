//! Imports messages in the format of OpenAI's chat completions.
//!
//! Source: OpenAI, API reference, "Create chat completion": `messages`, `tool_calls`, and the older `function_call`.
//! There, arguments are JSON as text. The second version of tau-bench writes them as objects.

use serde_json::Value;

use super::recorder::Recorder;
use super::{InvalidItem, field, text_of};
use crate::event::{CallArguments, TrajectoryEvent};

/// Imports one conversation.
pub(super) fn read(messages: &[Value]) -> Result<Vec<TrajectoryEvent>, InvalidItem> {
    let mut recorder = Recorder::default();
    for (index, message) in messages.iter().enumerate() {
        let invalid = |what: String| InvalidItem { index, item_kind: "message", what };
        match field(message, "role") {
            "system" | "developer" => {}
            "user" => recorder.user(text_of(message.get("content"))),
            "assistant" | "model" => assistant(&mut recorder, message).map_err(invalid)?,
            "tool" | "function" => result(&mut recorder, message),
            "" => return Err(invalid("has no `role`".into())),
            role => return Err(invalid(format!("there is no role `{role}`; there are system, user, assistant, tool"))),
        }
    }
    Ok(recorder.done())
}

fn assistant(recorder: &mut Recorder, message: &Value) -> Result<(), String> {
    recorder.turn();
    if let Some(usage) = message.get("usage") {
        let tokens = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
        recorder.usage(tokens("prompt_tokens"), tokens("completion_tokens"));
    }
    for name in ["reasoning_content", "reasoning", "thought"] {
        recorder.thought(field(message, name).to_owned());
    }
    let calls = match message.get("tool_calls") {
        None | Some(Value::Null) => &[][..],
        Some(Value::Array(calls)) => calls,
        Some(_) => return Err("`tool_calls` must be a list".into()),
    };
    let older = message.get("function_call").filter(|call| call.is_object());
    recorder.assistant(text_of(message.get("content")), !calls.is_empty() || older.is_some());
    for call in calls.iter().chain(older) {
        let function = call.get("function").unwrap_or(call);
        let name = function.get("name").and_then(Value::as_str).ok_or("a call has no `name`")?;
        let args = match function.get("arguments") {
            None | Some(Value::Null) => CallArguments::parse(""),
            Some(Value::String(written)) => CallArguments::parse(written),
            Some(object) => CallArguments::parse(&object.to_string()),
        };
        recorder.call(call.get("id").and_then(Value::as_str).map(str::to_owned), name.to_owned(), args);
    }
    Ok(())
}

fn result(recorder: &mut Recorder, message: &Value) {
    let word = |name: &str| message.get(name).and_then(Value::as_str);
    let failed = ["is_error", "error"].iter().find_map(|name| message.get(name)?.as_bool());
    let id = word("tool_call_id").or_else(|| word("id"));
    recorder.result(id, word("name"), failed.map(|failed| !failed), text_of(message.get("content")));
}
