//! Tools, and the choice among them, as a chat request has them.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::fields::object;
use super::request::wrong;
use crate::routes::openai::OpenAiError;

/// The names of tools of types that the API defines.
pub(super) type Hosted = HashSet<String>;

/// The tools of the client, and the names of the others. Tools of a type that the API defines (`web_search_…`, `bash_…`) have
/// no schema; they keep their places, and are ignored where the tools are read.
pub(super) fn tools(mut tools: Value) -> (Value, Hosted) {
    let mut hosted = Hosted::new();
    for tool in tools.as_array_mut().into_iter().flatten() {
        let Value::Object(fields) = tool else { continue };
        match fields.get("type").and_then(Value::as_str) {
            None | Some("custom") => {
                let mut field = |name: &str| fields.remove(name).unwrap_or_default();
                let mut function = json!({});
                for (name, value) in [
                    ("name", field("name")),
                    ("description", field("description")),
                    ("parameters", field("input_schema")),
                    ("strict", field("strict")),
                ] {
                    function[name] = value;
                }
                *tool = Value::Object([("function".to_owned(), function)].into_iter().collect());
            }
            Some(_) => hosted.extend(fields.get("name").and_then(Value::as_str).map(str::to_owned)),
        }
    }
    (tools, hosted)
}

/// The choice among the tools.
pub(super) struct Choice {
    pub(super) chosen: Value,
    /// `Some(false)`: one call at a time.
    pub(super) parallel: Option<bool>,
}

/// The choice. One of the tools that are ignored is the model's own.
///
/// # Errors
/// 400: it is none of the forms of this API.
pub(super) fn choice(choice: Option<Value>, hosted: &Hosted) -> Result<Choice, OpenAiError> {
    let fields = object(choice, "tool_choice")?;
    let alone = fields.get("disable_parallel_tool_use").and_then(Value::as_bool).unwrap_or(false);
    let chosen = match (fields.get("type").and_then(Value::as_str), fields.get("name").and_then(Value::as_str)) {
        (None, _) if fields.is_empty() => Value::Null,
        (Some("auto"), _) => json!("auto"),
        (Some("any"), _) => json!("required"),
        (Some("none"), _) => json!("none"),
        (Some("tool"), Some(name)) if hosted.contains(name) => json!("auto"),
        (Some("tool"), Some(name)) => json!({"type": "function", "function": {"name": name}}),
        (Some("tool"), None) => return Err(wrong("tool_choice.name", "must be the name of a tool")),
        _ => return Err(wrong("tool_choice.type", "must be auto, any, tool or none")),
    };
    Ok(Choice { chosen, parallel: alone.then_some(false) })
}
