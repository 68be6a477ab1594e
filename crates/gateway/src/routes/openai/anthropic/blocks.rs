//! The blocks of a message, as the parts, calls and results of a chat request. Blocks of unknown types are left out; those of
//! known types have to have their fields.

use serde_json::{Map, Value, json};

use super::request::wrong;
use super::sources::file;
use crate::routes::openai::OpenAiError;

/// The fields of a block without its type.
pub(super) type Fields = Map<String, Value>;

/// The contents of the blocks of a message.
#[derive(Default)]
pub(super) struct Said {
    /// Texts and files.
    pub(super) parts: Vec<Value>,
    /// The calls of an answer.
    pub(super) calls: Vec<Value>,
    /// Messages with the results of calls.
    pub(super) results: Vec<Value>,
}

impl Said {
    /// Adds a block.
    ///
    /// # Errors
    /// 400: it is no block, or lacks a field of its type.
    pub(super) fn add(&mut self, block: Value, role: &str, path: &str) -> Result<(), OpenAiError> {
        let (kind, mut fields) = typed(block, path)?;
        match (kind.as_str(), role) {
            ("text", _) => self.parts.push(text_part(text(&mut fields, "text", path)?)),
            ("image", "user") => self.parts.push(file(&mut fields, "picture", path)?),
            ("document", "user") => self.add_document(fields, path)?, // see `sources`
            ("search_result", "user") => self.parts.push(text_part(found(fields, path)?)),
            ("tool_result", "user") => self.results.push(result(fields, path)?),
            ("tool_use", "assistant") => self.calls.push(call(fields, path)?),
            (kind, role) => tracing::debug!(kind, role, "a block is left out"),
        }
        Ok(())
    }
}

/// The type of a block, and its other fields.
pub(super) fn typed(block: Value, path: &str) -> Result<(String, Fields), OpenAiError> {
    let Value::Object(mut fields) = block else { return Err(wrong(path, "must be an object with a type")) };
    match fields.remove("type") {
        Some(Value::String(kind)) => Ok((kind, fields)),
        _ => Err(wrong(format!("{path}.type"), "must be the type of a block")),
    }
}

pub(super) fn text(fields: &mut Fields, name: &str, path: &str) -> Result<String, OpenAiError> {
    match fields.remove(name) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(wrong(format!("{path}.{name}"), "must be a text")),
    }
}

pub(super) fn text_part(text: String) -> Value {
    json!({"type": "text", "text": text})
}

/// The text of a search result.
fn found(mut fields: Fields, path: &str) -> Result<String, OpenAiError> {
    let mut lines = vec![format!("{} ({})", text(&mut fields, "title", path)?, text(&mut fields, "source", path)?)];
    if let Some(Value::Array(blocks)) = fields.remove("content") {
        lines.extend(blocks.iter().filter_map(|block| block["text"].as_str()).map(str::to_owned));
    }
    Ok(lines.join("\n"))
}

fn call(mut fields: Fields, path: &str) -> Result<Value, OpenAiError> {
    let (id, name) = (text(&mut fields, "id", path)?, text(&mut fields, "name", path)?);
    let input = fields.remove("input").unwrap_or_default();
    if !(input.is_object() || input.is_null()) {
        return Err(wrong(format!("{path}.input"), "must be an object"));
    }
    Ok(json!({"id": id, "type": "function", "function": {"name": name, "arguments": input}}))
}

/// The message with the result of a call. Its pictures and documents are only named.
fn result(mut fields: Fields, path: &str) -> Result<Value, OpenAiError> {
    let id = text(&mut fields, "tool_use_id", path)?;
    let mut parts = Vec::new();
    if fields.get("is_error").and_then(Value::as_bool).unwrap_or(false) {
        parts.push(text_part("The tool has failed:".to_owned()));
    }
    match fields.remove("content") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => parts.push(text_part(text)),
        Some(Value::Array(blocks)) => {
            for (at, block) in blocks.into_iter().enumerate() {
                let path = format!("{path}.content[{at}]");
                let (kind, mut fields) = typed(block, &path)?;
                parts.push(match kind.as_str() {
                    "text" => text_part(text(&mut fields, "text", &path)?),
                    "search_result" => text_part(found(fields, &path)?),
                    kind => json!({"type": kind}),
                });
            }
        }
        Some(_) => return Err(wrong(format!("{path}.content"), "must be a text or a list of blocks")),
    }
    Ok(json!({"role": "tool", "tool_call_id": id, "content": parts}))
}
