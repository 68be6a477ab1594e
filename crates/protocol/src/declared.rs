//! Declared outputs: values that a run must produce, and the notation in which people declare them.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The maximum length of an output's name, in bytes. 64: the limit of providers for property names.
const NAME_MAX_BYTES: usize = 64;

/// One value that a run must produce.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DeclaredOutput {
    /// Its name: `[A-Za-z_][A-Za-z0-9_]*`, at most 64 bytes.
    pub name: String,
    /// JSON Schema of its value.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Map<String, Value>"))]
    pub schema: Value,
    /// Its meaning, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl DeclaredOutput {
    /// The names of types. A suffix `[]` makes a list of the type.
    pub const TYPES: &'static [&'static str] = &["string", "number", "integer", "boolean", "object", "array"];

    /// The schema of a type's name, such as `integer` or `string[]`. `None`: there is no such type.
    pub fn schema_of(word: &str) -> Option<Value> {
        match word.strip_suffix("[]") {
            Some(items) => Some(json!({ "type": "array", "items": Self::schema_of(items)? })),
            None => Self::TYPES.contains(&word).then(|| json!({ "type": word })),
        }
    }

    /// The problem with a name; `None`: the name is valid.
    pub fn name_problem(name: &str) -> Option<String> {
        let mut chars = name.chars();
        let begins = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        let goes_on = chars.all(|c| c.is_ascii_alphanumeric() || c == '_');
        (!begins || !goes_on || name.len() > NAME_MAX_BYTES).then(|| {
            format!("{name:?} is no name: letters, digits and _, not beginning with a digit, at most {NAME_MAX_BYTES}")
        })
    }

    /// Parses `NAME:TYPE`, `NAME:TYPE=description`, or the same with a JSON Schema instead of the type.
    ///
    /// # Errors
    /// The problem and the list of types, as a sentence for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let types = || format!("{}, any of them with [] behind it, or a JSON Schema", Self::TYPES.join(", "));
        let (name, rest) =
            text.split_once(':').ok_or_else(|| format!("expected NAME:TYPE, where TYPE is one of {}", types()))?;
        if let Some(problem) = Self::name_problem(name) {
            return Err(problem);
        }
        let (schema, rest) = if rest.starts_with('{') {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            let schema =
                values.next().and_then(Result::ok).ok_or_else(|| format!("{name}: this is no JSON: {rest}"))?;
            (schema, &rest[values.byte_offset()..])
        } else {
            let end = rest.find('=').unwrap_or(rest.len());
            let word = &rest[..end];
            let schema = Self::schema_of(word)
                .ok_or_else(|| format!("{name}: there is no type {word:?}; the types are {}", types()))?;
            (schema, &rest[end..])
        };
        let description = match rest.strip_prefix('=') {
            Some(description) => Some(description.trim().to_owned()).filter(|text| !text.is_empty()),
            None if rest.is_empty() => None,
            None => {
                return Err(format!("{name}: {rest:?} does not belong behind the schema; a description begins with ="));
            }
        };
        Ok(Self { name: name.to_owned(), schema, description })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_read_as_people_write_them() {
        let output = |name: &str, schema: Value, description: Option<&str>| {
            Ok(DeclaredOutput { name: name.into(), schema, description: description.map(str::to_owned) })
        };
        for (text, expected) in [
            ("answer:string", output("answer", json!({"type": "string"}), None)),
            ("n:integer=how many = there are", output("n", json!({"type": "integer"}), Some("how many = there are"))),
            ("n:number= ", output("n", json!({"type": "number"}), None)),
            ("_a1:string[]", output("_a1", json!({"type": "array", "items": {"type": "string"}}), None)),
            (
                "m:integer[][]",
                output("m", json!({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}), None),
            ),
            (r#"s:{"enum":["a=b","c"]}=which"#, output("s", json!({"enum": ["a=b", "c"]}), Some("which"))),
            (r#"s:{"type":"string"}"#, output("s", json!({"type": "string"}), None)),
        ] {
            assert_eq!(DeclaredOutput::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_output_is_told_with_what_would_be() {
        for (text, needle) in [
            ("answer", "NAME:TYPE"),
            ("", "NAME:TYPE"),
            ("answer:", "string, number, integer, boolean, object, array"),
            ("answer:text", "\"text\""),
            ("answer:String", "string, number"),
            ("answer:string[", "\"string[\""),
            ("1a:string", "no name"),
            (":string", "no name"),
            ("a b:string", "no name"),
            (r#"s:{"type":"string""#, "no JSON"),
            (r#"s:{"type":"string"}x"#, "begins with ="),
        ] {
            let problem = DeclaredOutput::parse(text).expect_err(text);
            assert!(problem.contains(needle), "{text}: {problem}");
        }
        assert!(DeclaredOutput::name_problem(&"a".repeat(64)).is_none());
        assert!(DeclaredOutput::name_problem(&"a".repeat(65)).is_some());
    }
}
