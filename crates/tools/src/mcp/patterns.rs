//! Prepares the patterns of a schema. Only patterns that the linear-time engine can read, and that stay small when
//! they are compiled, are checked before a call. The server checks the others itself.
//!
//! The schema accepts everything that it accepted before. A pattern that is not checked is named in the description of
//! its argument. It is removed from the schema, because servers of local models refuse a request with a pattern that
//! they cannot read.

use std::collections::HashMap;

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value, json};

/// Largest compiled pattern in bytes, by size class. 64 KiB: the patterns of zod 4 for its formats, of which IPv6 is
/// the largest. 1 MiB: one class of Unicode letters, repeated 16 times.
const COMPILED: [usize; 2] = [64 * 1024, 1024 * 1024];
/// Largest compiled patterns of one tool together, in bytes. 8 MiB: a called tool keeps them.
const MAX_COMPILED: usize = 8 * 1024 * 1024;
/// Most class escapes (`\d`, `\w`, `\p{…}`) in one pattern. 64: three times those of zod 4 for a date. The translation
/// to our engine reads the whole pattern again for each of them.
const MAX_ESCAPES: usize = 64;
/// Longest pattern that the description of an argument names, in bytes.
const MAX_NAMED: usize = 500;

/// Keywords whose keys are names instead of keywords.
const NAMED: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];
/// Keywords whose values are data.
const DATA: [&str; 4] = ["enum", "const", "default", "examples"];
/// Keywords that can refuse more if a schema below them accepts more.
const INVERTING: [&str; 9] = [
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "unevaluatedProperties",
    "unevaluatedItems",
];

/// Compiles a schema in the same way as the effect gate does before each call. A format is an annotation, as in the
/// dialect of MCP: servers accept more than its RFC, for example a time without an offset.
pub(super) fn compile(schema: &Value) -> Result<Validator, ValidationError<'static>> {
    let options = jsonschema::options().offline().should_validate_formats(false);
    options.with_pattern_options(PatternOptions::regex()).build(schema)
}

/// Removes the patterns that are not checked.
pub(super) fn without_unchecked(schema: &mut Value) {
    let mut patterns = Patterns { known: HashMap::new(), left: MAX_COMPILED };
    if patterns.has_unchecked(schema) {
        patterns.relax(schema);
    }
}

struct Patterns {
    /// Whether each pattern is checked.
    known: HashMap<String, bool>,
    /// How many bytes the other compiled patterns may take.
    left: usize,
}

impl Patterns {
    fn is_checked(&mut self, pattern: &str) -> bool {
        if let Some(known) = self.known.get(pattern) {
            return *known;
        }
        let size = compiled_size(pattern).filter(|size| *size <= self.left);
        self.left -= size.unwrap_or_default();
        self.known.insert(pattern.to_owned(), size.is_some());
        size.is_some()
    }

    fn has_unchecked(&mut self, schema: &Value) -> bool {
        let Value::Object(table) = schema else {
            return schema.as_array().is_some_and(|items| items.iter().any(|item| self.has_unchecked(item)));
        };
        table.iter().any(|(key, value)| match (key.as_str(), value) {
            ("pattern", Value::String(pattern)) => !self.is_checked(pattern),
            (key, _) if DATA.contains(&key) => false,
            (key, Value::Object(named)) if NAMED.contains(&key) => {
                let is_pattern = key == "patternProperties";
                named.iter().any(|(name, value)| (is_pattern && !self.is_checked(name)) || self.has_unchecked(value))
            }
            (_, value) => self.has_unchecked(value),
        })
    }

    fn relax(&mut self, schema: &mut Value) {
        match schema {
            Value::Array(items) => items.iter_mut().for_each(|item| self.relax(item)),
            Value::Object(table) => {
                self.relax_keywords(table);
                for (key, value) in table.iter_mut().filter(|(key, _)| !DATA.contains(&key.as_str())) {
                    match value {
                        Value::Object(named) if NAMED.contains(&key.as_str()) => {
                            named.values_mut().for_each(|value| self.relax(value));
                        }
                        value => self.relax(value),
                    }
                }
            }
            _ => {}
        }
    }

    fn relax_keywords(&mut self, table: &mut Map<String, Value>) {
        // A reference may lead to a pattern that is not checked.
        let uncertain = |patterns: &mut Self, value: &Value| has_reference(value) || patterns.has_unchecked(value);
        if INVERTING.iter().any(|key| table.get(*key).is_some_and(|value| uncertain(self, value))) {
            table.retain(|key, _| !INVERTING.contains(&key.as_str()));
        }
        // Properties that only a removed pattern names are neither checked nor refused.
        table.retain(|key, _| !key.starts_with("unevaluated"));
        if table.get("oneOf").is_some_and(|value| uncertain(self, value)) {
            let any = json!({ "anyOf": table.remove("oneOf") });
            match table.get_mut("allOf").and_then(Value::as_array_mut) {
                Some(all) => all.push(any),
                None => _ = table.insert("allOf".into(), json!([any])),
            }
        }
        if let Some(Value::Object(named)) = table.get_mut("patternProperties") {
            let before = named.len();
            named.retain(|pattern, _| self.is_checked(pattern));
            if named.len() < before {
                named.entry("").or_insert(Value::Bool(true)); // so that `additionalProperties` refuses none of them
            }
        }
        if let Some(Value::String(pattern)) = table.get("pattern")
            && !self.is_checked(pattern)
        {
            let named = format!("Pattern: {}", crate::mcp::untrusted::line(pattern, MAX_NAMED));
            let described = table.get("description").and_then(Value::as_str).filter(|text| !text.is_empty());
            let described = described.map_or_else(|| named.clone(), |text| format!("{text} {named}"));
            table.insert("description".into(), described.into());
            table.remove("pattern");
        }
    }
}

fn has_reference(value: &Value) -> bool {
    match value {
        Value::Object(table) => {
            table.iter().any(|(key, value)| key.ends_with("Ref") || key == "$ref" || has_reference(value))
        }
        Value::Array(items) => items.iter().any(has_reference),
        _ => false,
    }
}

/// The size class of a pattern; `None`: it cannot be read, or is too large.
fn compiled_size(pattern: &str) -> Option<usize> {
    let after = |at: usize| pattern.as_bytes().get(at + 1).is_some_and(|byte| b"dDsSwWpP".contains(byte));
    if pattern.match_indices('\\').filter(|(at, _)| after(*at)).count() > MAX_ESCAPES {
        return None;
    }
    let schema = json!({ "pattern": pattern });
    COMPILED.into_iter().find(|size| {
        let options = PatternOptions::regex().size_limit(*size).dfa_size_limit(*size);
        jsonschema::options().offline().with_pattern_options(options).build(&schema).is_ok()
    })
}

#[cfg(test)]
mod tests;
