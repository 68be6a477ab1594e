//! The fields of a request that its response shows again.

use serde_json::{Map, Value, json};

use super::request::ResponsesRequest;

/// Fields that the answer shows as they were sent, with what they are otherwise.
const SHOWN: [(&str, Value); 12] = [
    ("max_output_tokens", Value::Null),
    ("max_tool_calls", Value::Null),
    ("metadata", Value::Null),
    ("parallel_tool_calls", Value::Bool(true)),
    ("prompt_cache_key", Value::Null),
    ("reasoning", Value::Null),
    ("safety_identifier", Value::Null),
    ("temperature", Value::Null),
    ("text", Value::Null),
    ("tool_choice", Value::Null),
    ("top_p", Value::Null),
    ("user", Value::Null),
];

/// Fields that the run keeps, so that a response that is read again has them.
const KEPT: [&str; 2] = ["instructions", "metadata"];

impl ResponsesRequest {
    /// What the run keeps of the request.
    pub(super) fn note(&self) -> Map<String, Value> {
        let mut kept = self.shown();
        // Only the forms of OpenAI's API: a deep value could not be read again below the options of the run.
        let is_flat = |value: &Value| match value {
            Value::Object(texts) => !texts.is_empty() && texts.values().all(Value::is_string),
            value => value.is_string(),
        };
        kept.retain(|name, value| KEPT.contains(&name.as_str()) && is_flat(value));
        kept
    }

    /// The fields that the answer shows again.
    pub(super) fn shown(&self) -> Map<String, Value> {
        let mut shown = shown_by_default();
        for (name, _) in SHOWN.iter().filter(|(name, _)| self.others.get(*name).is_some_and(|value| !value.is_null())) {
            shown.insert((*name).to_owned(), self.others[*name].clone());
        }
        if let Some(tools) = self.others.get("tools").filter(|tools| tools.is_array()) {
            shown.insert("tools".to_owned(), tools.clone());
        }
        shown.insert("instructions".to_owned(), self.instructions.clone().unwrap_or_default());
        shown.insert("previous_response_id".to_owned(), json!(self.previous_response_id));
        shown
    }
}

/// The same for a response whose request is not known any more.
pub(super) fn shown_by_default() -> Map<String, Value> {
    let mut shown: Map<String, Value> =
        SHOWN.into_iter().map(|(name, otherwise)| (name.to_owned(), otherwise)).collect();
    for (name, value) in [
        ("metadata", json!({})),
        ("tool_choice", json!("auto")),
        ("tools", json!([])),
        ("text", json!({"format": {"type": "text"}})),
        ("reasoning", json!({"effort": null, "summary": null})),
        ("truncation", json!("disabled")),
        ("service_tier", json!("default")),
        ("instructions", Value::Null),
        ("previous_response_id", Value::Null),
    ] {
        shown.insert(name.to_owned(), value);
    }
    shown
}
