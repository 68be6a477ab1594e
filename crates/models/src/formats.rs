//! Which servers accept the form of an answer beside tools, and the forms that a model has refused.
//!
//! Most servers follow a form by a grammar for the whole answer, so that the model cannot call a tool any more. So the
//! default is no. The sources are in the table "The form of an answer" of `docs/reference/model-servers.md`.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use belay_protocol::{ModelError, ModelErrorKind, TextFormat};
use serde_json::{Map, Value};
use url::Url;

use crate::catalog::Format;

/// The maximum number of refused forms that are remembered. Beyond it the oldest is forgotten, and costs one more refused
/// request.
const REMEMBERED_MAX: usize = 256;

/// Hosts with OpenAI's format whose models can still call tools. A leading dot: the end of the host.
const BESIDE_TOOLS: [&str; 2] = ["api.openai.com", ".openai.azure.com"];

/// The request fields for a form. If `llm.extra_body` sets one of them, we send no form.
const FIELDS: [&str; 2] = ["response_format", "output_config"];

/// Words of errors about a form: "Invalid schema for response_format", "output_config.format: …", "json_schema is not
/// supported".
const ABOUT_FORMS: [&str; 4] = ["response_format", "output_config", "output_format", "schema"];

/// Whether a server accepts forms, and its model can still call tools.
pub(crate) fn beside_tools(format: Format, url: &Url, extra_body: &Map<String, Value>) -> bool {
    if FIELDS.iter().any(|field| extra_body.contains_key(*field)) {
        return false;
    }
    let host = url.host_str().unwrap_or_default();
    match format {
        Format::OpenAi => BESIDE_TOOLS.iter().any(|known| match known.starts_with('.') {
            true => host.ends_with(known),
            false => host == *known,
        }),
        // Other servers with this format ignore the field, or refuse it once.
        Format::Anthropic => true,
        Format::Library(_) | Format::Rehearsal => false,
    }
}

/// Whether each object of a schema names all of its fields. Anthropic refuses other schemas.
pub(crate) fn is_closed(schema: &Value) -> bool {
    every_object(schema, &|object| object.get("additionalProperties") == Some(&Value::Bool(false)))
}

/// Whether a schema is closed and requires all fields. OpenAI enforces such schemas, and refuses to enforce others.
pub(crate) fn is_strict(schema: &Value) -> bool {
    let requires_all = |object: &Map<String, Value>| {
        let required = object.get("required").and_then(Value::as_array);
        let requires = |name: &String| required.is_some_and(|names| names.iter().any(|it| it == name.as_str()));
        object.get("properties").and_then(Value::as_object).is_none_or(|fields| fields.keys().all(requires))
    };
    is_closed(schema) && every_object(schema, &requires_all)
}

// The recursion is bounded, because the depth of declared schemas is.
fn every_object(schema: &Value, check: &dyn Fn(&Map<String, Value>) -> bool) -> bool {
    match schema {
        Value::Object(fields) => {
            let is_object = fields.get("type").is_some_and(|kind| kind == "object" || names_object(kind))
                || fields.get("properties").is_some_and(Value::is_object);
            (!is_object || check(fields)) && fields.values().all(|value| every_object(value, check))
        }
        Value::Array(items) => items.iter().all(|item| every_object(item, check)),
        _ => true,
    }
}

fn names_object(kind: &Value) -> bool {
    kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "object"))
}

/// Whether an error may be a refusal of a form by its words.
pub(crate) fn is_about_form(error: &ModelError) -> bool {
    let said = error.detail.to_lowercase();
    error.kind == ModelErrorKind::BadRequest && ABOUT_FORMS.iter().any(|word| said.contains(word))
}

/// The refused forms of one candidate, as digests in memory.
#[derive(Default)]
pub(crate) struct RefusedForms {
    hasher: RandomState,
    /// Locked for a few comparisons, never across an await.
    digests: Mutex<VecDeque<u64>>,
}

impl RefusedForms {
    /// Whether this form was refused before.
    pub(crate) fn contains(&self, format: &TextFormat) -> bool {
        let digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        digests.contains(&self.digest(format))
    }

    /// Remembers that this form was refused.
    pub(crate) fn remember(&self, format: &TextFormat) {
        let mut digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        digests.push_back(self.digest(format));
        if digests.len() > REMEMBERED_MAX {
            digests.pop_front();
        }
    }

    fn digest(&self, format: &TextFormat) -> u64 {
        self.hasher.hash_one(format.schema.to_string())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_form_is_sent_where_the_model_can_still_call_tools() {
        for (format, url, extra, expected) in [
            (Format::OpenAi, "https://api.openai.com/v1", json!({}), true),
            (Format::OpenAi, "https://x.openai.azure.com/openai/v1", json!({}), true),
            (Format::OpenAi, "https://api.openai.com.example.com/v1", json!({}), false),
            (Format::OpenAi, "https://api.groq.com/openai/v1", json!({}), false),
            (Format::OpenAi, "http://127.0.0.1:8000/v1", json!({}), false),
            (Format::OpenAi, "https://api.openai.com/v1", json!({"response_format": {"type": "text"}}), false),
            (Format::Anthropic, "https://api.anthropic.com", json!({}), true),
            (Format::Anthropic, "https://api.anthropic.com", json!({"output_config": {}}), false),
            (Format::Library(crate::adapter::AdapterKind::Gemini), "https://g.example", json!({}), false),
        ] {
            let sent = beside_tools(format, &url.parse().unwrap(), extra.as_object().unwrap());
            assert_eq!(sent, expected, "{url} {extra}");
        }
    }

    #[test]
    fn schemas_are_closed_and_strict_at_every_depth() {
        let closed = |properties: Value, required: Value| {
            json!({"type": "object", "properties": properties,
            "required": required, "additionalProperties": false})
        };
        for (schema, expected) in [
            (json!({"type": "object"}), (false, false)),
            (closed(json!({"a": {"type": "integer"}}), json!(["a"])), (true, true)),
            (closed(json!({"a": {"type": "integer"}}), json!([])), (true, false)),
            (closed(json!({"a": {"type": "object"}}), json!(["a"])), (false, false)),
            (closed(json!({"a": {"type": ["object", "null"]}}), json!(["a"])), (false, false)),
            (
                closed(json!({"a": {"type": "array", "items": closed(json!({"b": {}}), json!([]))}}), json!(["a"])),
                (true, false),
            ),
        ] {
            assert_eq!((is_closed(&schema), is_strict(&schema)), expected, "{schema}");
        }
    }
}
