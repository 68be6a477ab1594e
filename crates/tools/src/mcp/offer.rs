//! Checks and cleans a server's description of a tool, which is untrusted content, and computes its digests.

use std::collections::HashSet;

use belay_text::is_hidden;
use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::mcp::patterns::{compile, without_unchecked};
use crate::mcp::untrusted::{line, shown};

/// Longest name that a server may give to a tool, in bytes. 128: twice the longest name for models.
pub(super) const MAX_TOOL_NAME: usize = 128;
/// Longest description for the model, in bytes. 4 KiB: more is a manual. A longer one is cut, with a note.
const MAX_DESCRIPTION: usize = 4 * 1024;
/// Longest description of one argument, in bytes.
const MAX_ARGUMENT_DESCRIPTION: usize = 1024;
/// Largest schema in bytes of JSON. 16 KiB: every request to the model contains it.
const MAX_SCHEMA: usize = 16 * 1024;
/// Deepest nesting of a schema. 32: four times the usual depth.
const MAX_DEPTH: usize = 32;
/// Most values in a schema. 1000: each may become a validator.
const MAX_NODES: usize = 1000;
/// Most references in a schema. 64: each reference is expanded at every use, so chains of them grow exponentially.
const MAX_REFERENCES: usize = 64;

/// A checked tool of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Offer {
    /// The name that the server gives it.
    pub(super) tool: String,
    /// The server's description, cleaned and bounded.
    pub(super) description: String,
    /// The schema of its arguments.
    pub(super) schema: Value,
    /// Whether the server says that the tool only reads and can be repeated.
    pub(super) repeatable: bool,
    /// Whether the server says that the tool may be destructive.
    pub(super) destructive: bool,
    /// Identify the description that was approved.
    pub(super) digests: Digests,
}

/// Digests of a server's description of one tool: blake3 in hex, over the original text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Digests {
    /// Of description, arguments and hints together.
    pub(super) whole: String,
    /// Of the description only.
    pub(super) description: String,
    /// Of the arguments only.
    pub(super) schema: String,
}

/// A tool of a server that cannot be offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// The name that the server gives it, cleaned and bounded.
    pub(super) tool: String,
    /// The reason.
    pub(super) why: String,
}

/// Checks one tool of a server.
///
/// # Errors
/// Why the tool cannot be offered.
pub(super) fn check(tool: &Tool) -> Result<Offer, LeftOut> {
    let schema = Value::Object(tool.input_schema.as_ref().clone());
    let hints = tool.annotations.as_ref();
    checked_name(&tool.name)
        .and_then(|()| checked_schema(&schema))
        .map(|schema| Offer {
            tool: tool.name.to_string(),
            description: shown(tool.description.as_deref().unwrap_or_default(), MAX_DESCRIPTION),
            schema,
            repeatable: hints
                .is_some_and(|hints| hints.read_only_hint == Some(true) && hints.idempotent_hint != Some(false)),
            destructive: hints.is_some_and(|hints| hints.destructive_hint == Some(true)),
            digests: digests(tool),
        })
        .map_err(|why| LeftOut { tool: line(&tool.name, MAX_TOOL_NAME), why })
}

/// Computes the digests of a tool's description.
pub(super) fn digests(tool: &Tool) -> Digests {
    let description = tool.description.as_deref().unwrap_or_default();
    let annotations = tool.annotations.as_ref().map(|hints| serde_json::to_value(hints).unwrap_or_default());
    let schema = canonical(&Value::Object(tool.input_schema.as_ref().clone()));
    let annotations = canonical(&annotations.unwrap_or_default());
    let mut whole = blake3::Hasher::new();
    for part in [description, &schema, &annotations] {
        // The length prefixes separate the parts.
        whole.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    Digests {
        whole: whole.finalize().to_hex().to_string(),
        description: blake3::hash(description.as_bytes()).to_hex().to_string(),
        schema: blake3::hash(schema.as_bytes()).to_hex().to_string(),
    }
}

/// The value as JSON with sorted keys, so that equal schemas have equal digests.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(table) => {
            let mut entries: Vec<_> = table.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            let entry = |(key, value): (&String, &Value)| format!("{}:{}", Value::from(key.as_str()), canonical(value));
            format!("{{{}}}", entries.into_iter().map(entry).collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

fn checked_name(name: &str) -> Result<(), String> {
    match name {
        "" => Err("it has no name".into()),
        name if name.len() > MAX_TOOL_NAME => Err(format!("its name is longer than {MAX_TOOL_NAME} bytes")),
        name if name.chars().any(|c| is_hidden(c) || c.is_whitespace()) => {
            Err("its name holds spaces or hidden characters".into())
        }
        _ => Ok(()),
    }
}

/// Checks a schema and prepares it for models. Cleans the descriptions. If the schema leaves additional properties
/// open, forbids them, so that a wrong argument of the model is reported instead of ignored.
fn checked_schema(schema: &Value) -> Result<Value, String> {
    Measure::default().take(schema, 0)?;
    if schema.to_string().len() > MAX_SCHEMA {
        return Err(format!("its arguments are described in more than {MAX_SCHEMA} bytes"));
    }
    if schema["type"] != "object" {
        return Err("its arguments are not described as an object".into());
    }
    let mut schema = cleaned(schema)?;
    let Some(table) = schema.as_object_mut() else { return Err("its arguments are not described as an object".into()) };
    let composed = ["allOf", "anyOf", "oneOf", "$ref", "patternProperties", "if", "unevaluatedProperties"];
    if !composed.iter().any(|key| table.contains_key(*key)) {
        table.entry("properties").or_insert_with(|| Value::Object(Map::new()));
        table.entry("additionalProperties").or_insert(Value::Bool(false));
    }
    without_unchecked(&mut schema);
    compile(&schema)
        .map_err(|error| format!("its arguments are described in no JSON Schema: {}", line(&error.to_string(), 200)))?;
    Ok(schema)
}

/// Counts the parts of a schema.
#[derive(Default)]
struct Measure {
    nodes: usize,
    references: usize,
}

impl Measure {
    fn take(&mut self, value: &Value, depth: usize) -> Result<(), String> {
        self.nodes += 1;
        if depth > MAX_DEPTH {
            return Err(format!("its arguments are nested deeper than {MAX_DEPTH}"));
        }
        match value {
            Value::Object(table) => {
                for (key, value) in table {
                    self.references += usize::from(key == "$ref" || key == "$dynamicRef");
                    self.take(value, depth + 1)?;
                }
            }
            Value::Array(items) => items.iter().try_for_each(|item| self.take(item, depth + 1))?,
            _ => {}
        }
        let over = [(self.nodes, MAX_NODES, "values"), (self.references, MAX_REFERENCES, "references")];
        match over.iter().find(|(count, most, _)| count > most) {
            Some((_, most, what)) => Err(format!("its arguments are described with more than {most} {what}")),
            None => Ok(()),
        }
    }
}

/// Removes hidden characters from the descriptions of the schema. In any other position they cannot be removed, because
/// that would change the arguments for the server.
fn cleaned(schema: &Value) -> Result<Value, String> {
    let prose: HashSet<&str> = HashSet::from(["description", "title", "$comment"]);
    Ok(match schema {
        Value::Object(table) => {
            let mut clean = Map::new();
            for (key, value) in table {
                let value = match value {
                    Value::String(text) if prose.contains(key.as_str()) => shown(text, MAX_ARGUMENT_DESCRIPTION).into(),
                    value => cleaned(value)?,
                };
                clean.insert(visible(key)?.to_owned(), value);
            }
            Value::Object(clean)
        }
        Value::Array(items) => items.iter().map(cleaned).collect::<Result<_, _>>()?,
        Value::String(text) => visible(text)?.into(),
        other => other.clone(),
    })
}

fn visible(text: &str) -> Result<&str, String> {
    if text.chars().any(is_hidden) { Err("its arguments hold hidden characters".into()) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn tool(value: Value) -> Tool {
        serde_json::from_value(value).unwrap()
    }

    fn with_schema(schema: Value) -> Tool {
        tool(json!({ "name": "t", "description": "Does it.", "inputSchema": schema }))
    }

    #[test]
    fn hidden_characters_are_removed_and_the_schema_is_closed() {
        let offer = check(&with_schema(json!({
            "type": "object",
            "properties": { "path": { "type": "string", "description": "Where\u{200b} it\u{e0041} is." } },
        })))
        .unwrap();
        assert_eq!(offer.schema["properties"]["path"]["description"], "Where it is.");
        assert_eq!(offer.schema["additionalProperties"], false);
        assert_eq!(check(&with_schema(json!({ "type": "object" }))).unwrap().schema["properties"], json!({}));
        let open = json!({ "type": "object", "properties": {}, "additionalProperties": true });
        assert_eq!(check(&with_schema(open.clone())).unwrap().schema, open);
    }

    #[test]
    fn a_tool_with_long_or_many_or_unreadable_patterns_is_offered() {
        let file: Value = serde_json::from_str(include_str!("patterns/zod.json")).unwrap();
        let rows = file["rows"].as_array().unwrap();
        let properties: Map<String, Value> =
            rows.iter().map(|row| (row["name"].as_str().unwrap().to_owned(), row["schema"].clone())).collect();
        let offer = check(&with_schema(json!({ "type": "object", "properties": properties.clone() }))).unwrap();
        assert_eq!(offer.schema["properties"]["ipv6"], properties["ipv6"]);
        assert_eq!(offer.schema["properties"]["duration"]["format"], "duration");
        check(&with_schema(json!({ "type": "object", "properties": { "a": { "pattern": "(" } } }))).unwrap();
    }

    #[test]
    fn a_tool_that_cannot_be_offered_is_left_out_with_the_reason() {
        let deep = (0..40).fold(json!({ "type": "string" }), |inner, _| json!({ "type": "array", "items": inner }));
        let wide: Map<String, Value> = (0..600).map(|n| (format!("p{n}"), json!({ "type": "string" }))).collect();
        let long: Map<String, Value> =
            (0..20).map(|n| (format!("p{n}"), json!({ "const": "x".repeat(1000) }))).collect();
        for (schema, why) in [
            (json!({}), "not described as an object"),
            (json!({ "type": "array" }), "not described as an object"),
            (json!({ "type": "object", "properties": { "a": deep } }), "nested deeper than 32"),
            (json!({ "type": "object", "properties": wide }), "more than 1000 values"),
            (json!({ "type": "object", "properties": long }), "more than 16384 bytes"),
            (json!({ "type": "object", "properties": { "a": { "type": "strnig" } } }), "no JSON Schema"),
            (
                json!({ "type": "object", "properties": { "a": { "$ref": "http://127.0.0.1:1/x.json" } } }),
                "no JSON Schema",
            ),
            (json!({ "type": "object", "properties": { "a": { "$ref": "file:///etc/passwd" } } }), "no JSON Schema"),
            (json!({ "type": "object", "properties": { "a": { "enum": ["\u{e0041}"] } } }), "hidden characters"),
            (json!({ "type": "object", "properties": { "a\u{200b}": {} } }), "hidden characters"),
        ] {
            let left_out = check(&with_schema(schema)).unwrap_err();
            assert!(left_out.why.contains(why), "{why}: {left_out:?}");
        }
        for name in ["", "a b", "a\u{200b}b", "a\nb", &"x".repeat(129)] {
            assert!(check(&tool(json!({ "name": name, "inputSchema": { "type": "object" } }))).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_long_description_is_cut_and_still_known_by_all_of_it() {
        let of = |text: String| {
            check(&tool(json!({ "name": "t", "description": text, "inputSchema": { "type": "object" } }))).unwrap()
        };
        let (one, two) = (of("x".repeat(5000)), of("x".repeat(5001)));
        assert_eq!(one.description, two.description);
        assert!(one.description.ends_with("[…]") && one.description.len() < 4200);
        assert_ne!(one.digests.whole, two.digests.whole);
    }

    #[test]
    fn a_digest_depends_exactly_on_its_parts() {
        let base = json!({ "name": "t", "description": "d", "inputSchema": { "type": "object", "properties": { "a": {}, "b": {} } } });
        let digest = |patch: Value| {
            let mut value = base.clone();
            value.as_object_mut().unwrap().extend(patch.as_object().unwrap().clone());
            digests(&tool(value))
        };
        let same = digest(json!({}));
        let reordered =
            r#"{"name":"t","inputSchema":{"properties":{"b":{},"a":{}},"type":"object"},"description":"d"}"#;
        assert_eq!(digests(&serde_json::from_str(reordered).unwrap()), same);
        assert_eq!(digest(json!({ "icons": [] })), same);
        let words = digest(json!({ "description": "d " }));
        assert!(words.whole != same.whole && words.description != same.description && words.schema == same.schema);
        let arguments = digest(json!({ "inputSchema": { "type": "object" } }));
        assert!(
            arguments.whole != same.whole
                && arguments.description == same.description
                && arguments.schema != same.schema
        );
        let hints = digest(json!({ "annotations": { "readOnlyHint": true } }));
        assert!(hints.whole != same.whole && hints.description == same.description && hints.schema == same.schema);
    }

    #[test]
    fn only_explicit_hints_count() {
        for (hints, repeatable, destructive) in [
            (json!(null), false, false),
            (json!({}), false, false),
            (json!({ "idempotentHint": true }), false, false),
            (json!({ "readOnlyHint": true }), true, false),
            (json!({ "readOnlyHint": true, "idempotentHint": false }), false, false),
            (json!({ "readOnlyHint": true, "destructiveHint": true }), true, true),
        ] {
            let offer = check(&tool(json!({ "name": "t", "inputSchema": { "type": "object" }, "annotations": hints })))
                .unwrap();
            assert_eq!((offer.repeatable, offer.destructive), (repeatable, destructive), "{hints}");
        }
    }
}
