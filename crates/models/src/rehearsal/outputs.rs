//! Submits declared outputs: finds the tools for them, and makes plausible values by type.

use std::sync::Arc;

use belay_protocol::{FIND_TOOLS, Tool, ToolCall, ToolSet};
use serde_json::{Map, Value, json};

use super::misbehave::object_call;
use super::turn::Turn;

/// Deepest level of a schema that is followed; below it, values are null. 8: people do not write deeper ones.
const MAX_DEPTH: u32 = 8;
/// The value of a number if the answer contains none.
const NUMBER: i64 = 42;

/// The parts of a request's tools that the rehearsal uses.
#[derive(Clone, Debug, Default)]
pub(super) struct Offered {
    /// Whether any tools are offered.
    pub(super) tools: bool,
    /// Whether a subagent can be started.
    pub(super) subagents: bool,
    /// The schema of `complete_task`'s arguments.
    pub(super) completion: Option<Value>,
}

impl From<bool> for Offered {
    fn from(tools: bool) -> Self {
        Self { tools, ..Self::default() }
    }
}

impl From<Option<&ToolSet>> for Offered {
    fn from(tools: Option<&ToolSet>) -> Self {
        const SPAWN: &str = "spawn_subagent";
        let Some(set) = tools else { return Self::default() };
        // A tool that was not offered runs when it is called.
        let names_it = |finder: &Arc<dyn Tool>| finder.spec().description.contains(SPAWN);
        Self {
            tools: true,
            subagents: set.get(SPAWN).is_some() || set.get(FIND_TOOLS).is_some_and(names_it),
            completion: set.get("complete_task").map(|tool| Value::clone(&tool.spec().schema)),
        }
    }
}

/// Makes the call that submits all outputs: each by its type, with content from the text that would have been the
/// answer.
pub(super) fn completion(turn: &Turn<'_>, schema: &Value, answer: &str) -> ToolCall {
    object_call(turn, 0, "complete_task", value_of(schema, answer, 0))
}

/// A value that satisfies a schema, as far as types, choices and bounds are concerned.
fn value_of(schema: &Value, answer: &str, depth: u32) -> Value {
    if depth > MAX_DEPTH {
        return Value::Null;
    }
    if let Some(value) = schema.get("const") {
        return value.clone();
    }
    let first = |key: &str| schema.get(key).and_then(Value::as_array).and_then(|list| list.first());
    if let Some(value) = first("enum") {
        return value.clone();
    }
    if let Some(schema) = first("anyOf").or_else(|| first("oneOf")) {
        return value_of(schema, answer, depth + 1);
    }
    let kind = schema.get("type").and_then(|kind| kind.as_str().or_else(|| first("type")?.as_str()));
    match kind {
        Some("integer") => integer(schema, answer),
        Some("number") => number(schema, answer),
        Some("boolean") => json!(true),
        Some("null") => Value::Null,
        Some("array") => {
            let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(1).clamp(1, 100);
            let item = schema.get("items").map_or_else(|| answer.into(), |items| value_of(items, answer, depth + 1));
            Value::Array((0..least).map(|_| item.clone()).collect())
        }
        Some("object") => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let all = properties.into_iter().flatten();
            Value::Object(
                all.map(|(name, schema)| (name.clone(), value_of(schema, answer, depth + 1))).collect::<Map<_, _>>(),
            )
        }
        _ => text(schema, answer),
    }
}

fn text(schema: &Value, answer: &str) -> Value {
    let most = schema.get("maxLength").and_then(Value::as_u64).and_then(|most| usize::try_from(most).ok());
    answer.chars().take(most.unwrap_or(usize::MAX)).collect::<String>().into()
}

fn integer(schema: &Value, answer: &str) -> Value {
    let bound = |key: &str| schema.get(key).and_then(Value::as_i64);
    let said = last_number(answer).filter(|n| n.fract() == 0.0 && n.abs() < 1e15).map(|n| n as i64);
    let value = said.unwrap_or(NUMBER);
    json!(value.min(bound("maximum").unwrap_or(i64::MAX)).max(bound("minimum").unwrap_or(i64::MIN)))
}

fn number(schema: &Value, answer: &str) -> Value {
    let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
    let value = last_number(answer).unwrap_or(NUMBER as f64);
    json!(value.min(bound("maximum").unwrap_or(f64::INFINITY)).max(bound("minimum").unwrap_or(f64::NEG_INFINITY)))
}

/// The last number of a text: the 391 of "17*23 = 391".
fn last_number(text: &str) -> Option<f64> {
    let words = text.rsplit(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-'));
    let numbers = words.filter_map(|word| word.trim_end_matches('.').parse::<f64>().ok());
    numbers.into_iter().find(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_gets_a_plausible_value() {
        for (schema, expected) in [
            (json!({"type": "string"}), json!("17*23 = 391.")),
            (json!({"type": "string", "maxLength": 5}), json!("17*23")),
            (json!({"type": "integer"}), json!(391)),
            (json!({"type": "integer", "maximum": 10}), json!(10)),
            (json!({"type": "number", "minimum": 400.5}), json!(400.5)),
            (json!({"type": "boolean"}), json!(true)),
            (json!({"type": "array", "items": {"type": "integer"}, "minItems": 2}), json!([391, 391])),
            (json!({"type": "array"}), json!(["17*23 = 391."])),
            (json!({"type": "object", "properties": {"n": {"type": "integer"}}}), json!({"n": 391})),
            (json!({"type": ["null", "string"]}), Value::Null),
            (json!({"enum": ["low", "high"]}), json!("low")),
            (json!({"anyOf": [{"type": "boolean"}, {"type": "string"}]}), json!(true)),
            (json!({}), json!("17*23 = 391.")),
        ] {
            assert_eq!(value_of(&schema, "17*23 = 391.", 0), expected, "{schema}");
        }
        assert_eq!(value_of(&json!({"type": "integer"}), "no number - at all.", 0), json!(NUMBER));
    }
}
