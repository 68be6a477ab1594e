#![allow(clippy::unwrap_used)]

use super::*;

fn relaxed(mut schema: Value) -> Value {
    without_unchecked(&mut schema);
    schema
}

fn accepts(schema: &Value, value: &Value) -> bool {
    compile(schema).unwrap().is_valid(value)
}

/// The schemas are what zod writes; the values are what it takes and refuses. `bad: null`: the pattern is not checked.
#[test]
fn the_formats_of_zod_are_checked_unless_their_pattern_looks_around() {
    let file: Value = serde_json::from_str(include_str!("zod.json")).unwrap();
    for row in file["rows"].as_array().unwrap() {
        let schema = relaxed(row["schema"].clone());
        assert!(accepts(&schema, &row["good"]), "{row}: {schema}");
        let bad = if row["bad"].is_null() { json!(7) } else { row["bad"].clone() };
        assert!(!accepts(&schema, &bad), "{row}: {schema}");
        let text = row["schema"].to_string();
        let unread = ["(?=", "(?!", "\\\\1"].iter().any(|part| text.contains(part));
        assert_eq!(schema != row["schema"], unread, "{row}: {schema}");
    }
}

#[test]
fn a_pattern_that_is_not_checked_is_named_and_refuses_nothing() {
    let ahead = "^(?=.*x)";
    let string = || json!({ "type": "string", "pattern": ahead });
    for (schema, good, bad) in [
        (json!({ "pattern": "(" }), json!("y"), None),
        (json!({ "pattern": "^(\\p{L}{1000}){1000}$" }), json!("y"), None),
        (json!({ "pattern": format!("^{}$", "\\w".repeat(4000)) }), json!("y"), None),
        (json!({ "properties": { "a": string() } }), json!({ "a": "y" }), Some(json!({ "a": 1 }))),
        (json!({ "$defs": { "x": string() }, "items": { "$ref": "#/$defs/x" } }), json!(["y"]), Some(json!([1]))),
        (json!({ "propertyNames": string() }), json!({ "y": 1 }), None),
        (
            json!({ "patternProperties": { ahead: { "type": "string" } }, "additionalProperties": false }),
            json!({ "y": 1 }),
            None,
        ),
        (
            json!({ "patternProperties": { ahead: {}, "^n": { "type": "number" } }, "unevaluatedProperties": false }),
            json!({ "y": 1 }),
            Some(json!({ "n": "x" })),
        ),
        // An answer that depends on such a pattern refuses nothing either.
        (json!({ "not": { "pattern": ahead } }), json!("x"), None),
        (json!({ "not": { "$ref": "#/$defs/x" }, "$defs": { "x": string() } }), json!("x"), None),
        (json!({ "oneOf": [string(), { "type": "string", "pattern": "^y" }] }), json!("y"), Some(json!(1))),
        (json!({ "if": { "pattern": ahead }, "then": { "const": "x" } }), json!("y"), None),
        (json!({ "contains": { "pattern": ahead }, "maxContains": 1 }), json!(["x", "y", "y"]), None),
    ] {
        let after = relaxed(schema.clone());
        assert_ne!(after, schema);
        assert!(accepts(&after, &good), "{schema}: {after}");
        assert!(bad.is_none_or(|bad| !accepts(&after, &bad)), "{schema}: {after}");
    }
    let after =
        relaxed(json!({ "type": "string", "format": "duration", "pattern": ahead, "description": "How long." }));
    assert_eq!(after, json!({ "type": "string", "format": "duration", "description": "How long. Pattern: ^(?=.*x)" }));
}

#[test]
fn other_parts_of_a_schema_stay_as_they_are() {
    for schema in [
        // Data and names that look like keywords.
        json!({ "const": { "pattern": "(" }, "enum": [{ "pattern": "(" }], "default": { "pattern": "(" } }),
        json!({ "properties": { "pattern": { "type": "string" }, "not": { "type": "string" } } }),
        json!({ "properties": { "a": { "pattern": "^[a-z]{1,2000}$" }, "b": { "pattern": "^[^/]{1,255}$" } } }),
        json!({ "anyOf": (0..100).map(|n| json!({ "pattern": format!("^a{n}$") })).collect::<Vec<_>>() }),
        json!({ "pattern": "a|".repeat(5000) }),
        json!({ "not": { "pattern": "^a" }, "oneOf": [{ "pattern": "b" }], "patternProperties": { "^c": false } }),
    ] {
        assert_eq!(relaxed(schema.clone()), schema);
    }
    let mixed = json!({ "properties": { "not": { "pattern": "(" }, "oneOf": { "type": "string" } } });
    assert_eq!(relaxed(mixed)["properties"]["not"], json!({ "description": "Pattern: (" }));
}

#[test]
fn the_patterns_of_a_tool_together_have_a_bound() {
    let large = |n: usize| json!({ "pattern": format!("^[^/]{{1,{}}}$", 300 + n) });
    let after = relaxed(json!({ "anyOf": (0..12).map(large).collect::<Vec<_>>() }));
    let checked = after["anyOf"].as_array().unwrap().iter().filter(|one| one.get("pattern").is_some()).count();
    assert_eq!(checked, 8);
}

#[test]
fn a_format_is_not_checked() {
    let draft7 = json!({ "$schema": "http://json-schema.org/draft-07/schema#", "format": "date-time" });
    assert!(accepts(&draft7, &json!("2026-11-29T04:00:00")));
}
