//! Limits for declared schemas. They are checked before compilation, since a schema comes from a client or a model,
//! and compilation blocks a shared thread. Within these limits it takes a millisecond, and 40 in the worst case.

use belay_protocol::{DeclaredOutput, json_bytes};
use jsonschema::PatternOptions;
use serde_json::Value;

/// Longest schemas of all outputs together, in bytes of JSON. 16 KiB, since every request contains them.
const MAX_SCHEMA_BYTES: usize = 16 * 1024;
/// Deepest nesting of one schema; a flat one has depth 1. 32: four times what people write. The stored state contains
/// the schema, and a JSON document deeper than 128 cannot be read back.
const MAX_DEPTH: usize = 32;
/// Most values in all schemas together: objects, lists, strings, numbers and words. 500, since each may become a
/// validator.
const MAX_NODES: usize = 500;
/// Most patterns and formats in all schemas together. 16, since each is compiled to an automaton.
const MAX_PATTERNS: usize = 16;
/// Longest patterns of all schemas together, in bytes. 1 KiB: three bytes can name a class of a hundred thousand
/// characters, and the compiler expands it before it checks the size of the automaton.
const MAX_PATTERN_BYTES: usize = 1024;
/// Most references in all schemas together. 16: a chain in which each link is used several times is then followed at
/// most a few hundred times for one value.
const MAX_REFERENCES: usize = 16;
/// Largest automaton of one pattern, and largest cache of its transitions, in bytes. 64 KiB: patterns for dates,
/// addresses and names of 64 characters need far less; only long repetitions of the letters of all scripts need more.
const MAX_AUTOMATON_BYTES: usize = 64 * 1024;

/// Options for patterns. This regular-expression engine takes linear time for any pattern.
pub(super) fn patterns() -> PatternOptions<jsonschema::Regex> {
    PatternOptions::regex().size_limit(MAX_AUTOMATON_BYTES).dfa_size_limit(MAX_AUTOMATON_BYTES)
}

/// What all schemas of one declaration contain together.
#[derive(Clone, Copy, Default)]
pub(super) struct Bounds {
    bytes: usize,
    nodes: usize,
    patterns: usize,
    pattern_bytes: usize,
    references: usize,
}

impl Bounds {
    /// Adds the schema of one output, or refuses it.
    ///
    /// # Errors
    /// The first limit that the schema exceeds, with the name of the output.
    pub(super) fn admit(&mut self, output: &DeclaredOutput) -> Result<(), String> {
        *self = self.with(&output.schema).map_err(|problem| format!("{}: {problem}", output.name))?;
        Ok(())
    }

    fn with(mut self, schema: &Value) -> Result<Self, String> {
        if !schema.is_object() {
            return Err("a schema is a JSON object".into());
        }
        // The walk comes first, since it stops at the greatest depth. Serialisation would visit every level.
        self.walk(schema, 1)?;
        self.bytes += json_bytes(schema);
        within(self.bytes, MAX_SCHEMA_BYTES, "bytes long, all outputs together")?;
        Ok(self)
    }

    fn walk(&mut self, value: &Value, depth: usize) -> Result<(), String> {
        within(depth, MAX_DEPTH, "levels deep")?;
        self.nodes += 1;
        within(self.nodes, MAX_NODES, "values, all outputs together")?;
        match value {
            Value::Object(fields) => fields.iter().try_for_each(|(key, value)| {
                self.keyword(key, value)?;
                self.walk(value, depth + 1)
            }),
            Value::Array(items) => items.iter().try_for_each(|item| self.walk(item, depth + 1)),
            _ => Ok(()),
        }
    }

    /// Counts the expensive keywords. The value of a keyword is a string, or an object for `patternProperties`. A
    /// property that is only named like a keyword is not counted, since its value is a schema.
    fn keyword(&mut self, key: &str, value: &Value) -> Result<(), String> {
        match (key, value) {
            ("pattern" | "format", Value::String(text)) => self.pattern(text)?,
            ("patternProperties", Value::Object(fields)) => fields.keys().try_for_each(|text| self.pattern(text))?,
            ("$ref", Value::String(_)) => {
                self.references += 1;
                within(self.references, MAX_REFERENCES, "references ($ref), all outputs together")?;
            }
            ("$dynamicRef" | "$recursiveRef", Value::String(_)) => return Err(format!("{key} is not supported")),
            _ => {}
        }
        Ok(())
    }

    fn pattern(&mut self, text: &str) -> Result<(), String> {
        self.patterns += 1;
        self.pattern_bytes += text.len();
        within(self.patterns, MAX_PATTERNS, "patterns and formats, all outputs together")?;
        within(self.pattern_bytes, MAX_PATTERN_BYTES, "bytes of patterns, all outputs together")
    }
}

fn within(count: usize, most: usize, what: &str) -> Result<(), String> {
    if count <= most { Ok(()) } else { Err(format!("a schema is at most {most} {what}")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::subagent::Declared;

    /// Checks the schemas `a`, `b`, … of one declaration.
    fn check(schemas: Vec<Value>) -> Result<(), String> {
        let names = ('a'..='z').map(String::from);
        let outputs = names.zip(schemas).map(|(name, schema)| DeclaredOutput { name, schema, description: None });
        Declared::compile(outputs.collect()).map(drop)
    }

    /// A schema with this depth: nested `not`.
    fn nested(depth: usize) -> Value {
        (1..depth).fold(json!({}), |inner, _| json!({ "not": inner }))
    }

    fn all_of(schemas: impl IntoIterator<Item = Value>) -> Value {
        json!({ "allOf": schemas.into_iter().collect::<Vec<_>>() })
    }

    fn patterns_of(texts: impl IntoIterator<Item = String>) -> Value {
        all_of(texts.into_iter().map(|text| json!({ "pattern": text })))
    }

    /// A chain of references; each link refers twice to the next one.
    fn chain(links: usize) -> Value {
        let to = |n: usize| json!({ "$ref": format!("#/$defs/d{n}") });
        let link = |n: usize| json!({ "allOf": [to(n + 1), to(n + 1)], "unevaluatedProperties": false });
        let mut links: serde_json::Map<_, _> = (0..links).map(|n| (format!("d{n}"), link(n))).collect();
        links.insert(format!("d{}", links.len()), json!({ "type": "object" }));
        json!({ "allOf": links["d0"]["allOf"], "$defs": links })
    }

    #[test]
    fn what_passes_a_bound_is_refused_with_the_name_and_the_bound_and_what_reaches_it_is_taken() {
        let letters = |count: usize| "x".repeat(count);
        let enums = |count: usize| json!({ "enum": (0..count).collect::<Vec<_>>() });
        let properties = |count: usize| json!({ "patternProperties": (0..count).map(|n| (format!("p{n}"), json!({}))).collect::<serde_json::Map<_, _>>() });
        for (schemas, refused) in [
            (vec![nested(MAX_DEPTH)], None),
            (vec![nested(MAX_DEPTH + 1)], Some("a: a schema is at most 32 levels deep")),
            (vec![nested(126)], Some("a: a schema is at most 32 levels deep")),
            (vec![enums(MAX_NODES - 2)], None),
            (vec![enums(MAX_NODES - 1)], Some("a: a schema is at most 500 values")),
            (vec![enums(300), enums(300)], Some("b: a schema is at most 500 values")),
            (vec![json!({ "const": "x".repeat(MAX_SCHEMA_BYTES - 12) })], None),
            (vec![json!({ "const": "x".repeat(MAX_SCHEMA_BYTES - 11) })], Some("a: a schema is at most 16384 bytes")),
            (vec![json!({ "const": "x".repeat(9000) }); 2], Some("b: a schema is at most 16384 bytes")),
            (vec![patterns_of(vec!["^a+$".into(); MAX_PATTERNS])], None),
            (vec![patterns_of(vec!["^a+$".into(); MAX_PATTERNS + 1])], Some("a: a schema is at most 16 patterns")),
            (vec![properties(MAX_PATTERNS)], None),
            (vec![properties(MAX_PATTERNS + 1)], Some("a: a schema is at most 16 patterns")),
            (vec![json!({ "format": "date" }); MAX_PATTERNS], None),
            (vec![json!({ "format": "date" }); MAX_PATTERNS + 1], Some("q: a schema is at most 16 patterns")),
            (vec![json!({ "properties": { "pattern": { "type": "string" }, "$dynamicRef": {} } }); 20], None),
            (vec![patterns_of([letters(MAX_PATTERN_BYTES)])], None),
            (
                vec![patterns_of([letters(MAX_PATTERN_BYTES + 1)])],
                Some("a: a schema is at most 1024 bytes of patterns"),
            ),
            (vec![patterns_of([r"\pL{90}".into()])], Some("a: this is not a usable JSON Schema")),
            (vec![patterns_of([r"^\pL\pN*$".into(), r"^\d{4}-\d\d-\d\d$".into(), r"^\w{1,64}$".into()])], None),
            (vec![chain(MAX_REFERENCES / 2 - 1)], None),
            (vec![chain(MAX_REFERENCES / 2)], Some("a: a schema is at most 16 references")),
            (vec![json!({ "$ref": "https://example.com/a.json" })], Some("a: this is not a usable JSON Schema")),
            (vec![json!({ "$dynamicRef": "#a" })], Some("a: $dynamicRef is not supported")),
            (vec![json!({ "$recursiveRef": "#" })], Some("a: $recursiveRef is not supported")),
            (vec![json!(true)], Some("a: a schema is a JSON object")),
        ] {
            let text = format!("{} schemas, refused: {refused:?}", schemas.len());
            match (check(schemas), refused) {
                (Ok(()), None) => {}
                (Err(problem), Some(needle)) => assert!(problem.contains(needle), "{text}: {problem}"),
                (other, _) => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn the_costliest_schema_within_the_bounds_can_be_compiled() {
        let classes = (0..MAX_PATTERNS).map(|n| format!(r"(?i){}{n:02}", r"\w".repeat(29)));
        let values = json!({ "enum": (0..300).collect::<Vec<_>>() });
        check(vec![patterns_of(classes), chain(MAX_REFERENCES / 2 - 1), values]).expect("within the bounds");
    }
}
