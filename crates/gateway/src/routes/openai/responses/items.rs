//! The items of an answer.

use serde_json::{Value, json};

use crate::routes::openai::tool_calls::ToolCallBody;

/// The text of the model.
pub(super) fn message(id: &str, text: &str) -> Value {
    json!({"type": "message", "id": id, "role": "assistant", "status": "completed", "content": [text_part(text)]})
}

/// The text before its first piece.
pub(super) fn empty_message(id: &str) -> Value {
    json!({"type": "message", "id": id, "role": "assistant", "status": "in_progress", "content": []})
}

/// The part with the text.
pub(super) fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// A call that the client is to carry out.
pub(super) fn call(call: &ToolCallBody, status: &str) -> Value {
    let (id, name, arguments) = call.parts();
    let arguments = if status == "completed" { arguments } else { "" };
    json!({"type": "function_call", "id": call_item_id(id), "call_id": id, "name": name, "arguments": arguments,
        "status": status})
}

/// The beginning of the id of the item of a call.
pub(super) const CALL: &str = "fc_";

/// The id of the item of a call. The id of the call itself is what its result names.
pub(super) fn call_item_id(call: &str) -> String {
    format!("{CALL}{}", call.trim_start_matches("call_"))
}

/// The reasoning of the model.
pub(super) fn reasoning(id: &str, text: &str) -> Value {
    json!({"type": "reasoning", "id": id, "summary": [{"type": "summary_text", "text": text}]})
}

/// The items of an answer without reasoning.
pub(super) fn output(message_id: &str, text: &str, calls: &[ToolCallBody]) -> Vec<Value> {
    let text = (!text.is_empty() || calls.is_empty()).then(|| message(message_id, text));
    text.into_iter().chain(calls.iter().map(|one| call(one, "completed"))).collect()
}
