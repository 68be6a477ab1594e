//! The schema of a tool as a model reads it: without the parts that only the check of the arguments needs.

use serde_json::{Map, Value};

/// The keywords whose value is one schema. Within `not` and `oneOf` a wider schema would be a narrower one.
const OF_A_SCHEMA: [&str; 2] = ["items", "additionalProperties"];
/// The keywords whose value is a list of schemas.
const OF_SCHEMAS: [&str; 2] = ["anyOf", "allOf"];

/// The schema without what the gate checks anyway and a model seldom gets wrong: closed objects, the width and the
/// lower bound of numbers, lengths, and `null` and `false` for a value that is left out.
pub(crate) fn shown(schema: &Value) -> Value {
    part_of(schema, false)
}

/// A schema for a model. `needed`: the value must be there, so that `null` is a value of its own.
fn part_of(schema: &Value, needed: bool) -> Value {
    let Value::Object(schema) = schema else { return schema.clone() };
    let required = |name: &str| {
        let names = schema.get("required").and_then(Value::as_array);
        names.is_some_and(|names| names.iter().any(|known| known == name))
    };
    let part = |(keyword, value): (&String, &Value)| {
        let value = match (keyword.as_str(), value) {
            ("additionalProperties", Value::Bool(false)) => return None,
            ("default", Value::Null | Value::Bool(false)) if !needed => return None,
            ("minLength" | "minItems" | "maxLength" | "maxItems", _) => return None,
            ("minimum", Value::Number(least)) if least.as_u64().is_some_and(|least| least <= 1) => return None,
            ("format", Value::String(width)) if width.starts_with("uint") || width.starts_with("int") => return None,
            ("type", Value::Array(types)) if !needed => without_null(types),
            ("description", Value::String(text)) => text.replace('\n', " ").into(),
            ("properties", Value::Object(properties)) => properties
                .iter()
                .map(|(name, property)| (name.clone(), part_of(property, required(name))))
                .collect::<Map<_, _>>()
                .into(),
            (keyword, value) if OF_A_SCHEMA.contains(&keyword) => part_of(value, true),
            (keyword, Value::Array(schemas)) if OF_SCHEMAS.contains(&keyword) => {
                schemas.iter().map(|schema| part_of(schema, true)).collect()
            }
            (_, value) => value.clone(),
        };
        Some((keyword.clone(), value))
    };
    schema.iter().filter_map(part).collect::<Map<_, _>>().into()
}

/// These types without `null`: the only other one, or the list.
fn without_null(types: &[Value]) -> Value {
    let others: Vec<&Value> = types.iter().filter(|name| *name != "null").collect();
    match others[..] {
        [one] => one.clone(),
        _ => types.to_vec().into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn full() -> Value {
        json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["format", "parts"],
            "properties": {
                "format": { "type": ["string", "null"], "description": "two\nlines", "default": "a" },
                "limit": { "type": ["integer", "null"], "format": "uint64", "minimum": 1, "maximum": 9, "default": null },
                "all": { "type": "boolean", "default": false },
                "name": { "type": "string", "minLength": 1, "maxLength": 9 },
                "when": { "type": "string", "format": "date-time" },
                "any": { "type": ["integer", "string", "null"] },
                "parts": {
                    "type": "array",
                    "items": { "anyOf": [{ "type": "object", "additionalProperties": false }, { "type": "null" }] },
                },
                "named": { "type": "object", "additionalProperties": { "type": "integer", "format": "int32" } },
            },
        })
    }

    #[test]
    fn a_model_reads_the_schema_without_what_only_the_gate_needs() {
        let shown = json!({
            "type": "object",
            "required": ["format", "parts"],
            "properties": {
                "format": { "type": ["string", "null"], "description": "two lines", "default": "a" },
                "limit": { "type": "integer", "maximum": 9 },
                "all": { "type": "boolean" },
                "name": { "type": "string" },
                "when": { "type": "string", "format": "date-time" },
                "any": { "type": ["integer", "string", "null"] },
                "parts": { "type": "array", "items": { "anyOf": [{ "type": "object" }, { "type": "null" }] } },
                "named": { "type": "object", "additionalProperties": { "type": "integer" } },
            },
        });
        assert_eq!(super::shown(&full()), shown);
    }

    #[test]
    fn a_schema_that_is_no_object_stays() {
        assert_eq!(super::shown(&json!(true)), json!(true));
    }
}
