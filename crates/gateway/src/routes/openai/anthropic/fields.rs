//! Fields of a request that a chat request has in another form.

use serde_json::{Map, Value, json};

use super::request::wrong;
use crate::routes::openai::OpenAiError;

/// The name of the form of an answer, which this API does not have.
const FORM: &str = "answer";

/// An object, empty if there is none.
pub(super) fn object(value: Option<Value>, param: &str) -> Result<Map<String, Value>, OpenAiError> {
    match value {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(fields)) => Ok(fields),
        Some(_) => Err(wrong(param, "must be an object")),
    }
}

/// The form of the answer.
pub(super) fn format(format: Option<Value>) -> Result<Value, OpenAiError> {
    let mut fields = object(format, "output_config.format")?;
    match fields.get("type").and_then(Value::as_str) {
        None if fields.is_empty() => Ok(Value::Null),
        Some("json_schema") => match fields.remove("schema") {
            Some(Value::Object(schema)) => {
                Ok(json!({"type": "json_schema", "json_schema": {"name": FORM, "schema": schema}}))
            }
            _ => Err(wrong("output_config.format.schema", "must be a JSON Schema")),
        },
        _ => Err(wrong("output_config.format.type", "must be json_schema")),
    }
}

/// The thinking that a request asks for.
pub(super) struct Thinking {
    /// The reasoning effort; null: as the operator has set it.
    pub(super) effort: Value,
    /// Whether the answer shows the reasoning.
    pub(super) is_shown: bool,
}

/// Budgets of thinking below which the level is low, and medium; in tokens. They lie between the budgets that Belay gives its
/// levels: 2048, 8192 and 24,576.
const BUDGETS: [u64; 2] = [4096, 16_384];

impl Thinking {
    /// # Errors
    /// 400: a field has the wrong form.
    pub(super) fn of(thinking: Option<Value>, effort: Option<Value>) -> Result<Self, OpenAiError> {
        let fields = object(thinking, "thinking")?;
        let effort = effort.unwrap_or_default();
        if !(effort.is_null() || effort.is_string()) {
            return Err(wrong("output_config.effort", "must be a text"));
        }
        let by_budget = || match fields.get("budget_tokens").and_then(Value::as_u64) {
            Some(budget) if budget < BUDGETS[0] => json!("low"),
            Some(budget) if budget < BUDGETS[1] => json!("medium"),
            Some(_) => json!("high"),
            None => Value::Null,
        };
        Ok(match fields.get("type").map(Value::as_str) {
            None if fields.is_empty() => Self { effort, is_shown: false },
            Some(Some("disabled")) => Self { effort: json!("none"), is_shown: false },
            Some(Some(_)) => {
                let is_shown = fields.get("display").and_then(Value::as_str) != Some("omitted");
                Self { effort: if effort.is_null() { by_budget() } else { effort }, is_shown }
            }
            _ => return Err(wrong("thinking.type", "must be a text")),
        })
    }
}

/// The name that a parameter of the chat request has here.
pub(super) fn param(name: &str) -> String {
    for (chat, ours) in [
        ("response_format.json_schema", "output_config.format"),
        ("response_format", "output_config.format"),
        ("reasoning_effort", "output_config.effort"),
    ] {
        if let Some(rest) = name.strip_prefix(chat) {
            return format!("{ours}{rest}");
        }
    }
    match name {
        "stop" => "stop_sequences".to_owned(),
        _ => name.replace("].function.", "].").replace("].parameters", "].input_schema"),
    }
}
