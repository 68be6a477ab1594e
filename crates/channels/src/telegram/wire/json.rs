//! Reads a text as JSON without losing all of it because of one part.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserializer;
use serde::de::{Error, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// Depth down to which the parts of a text are read one by one. 16: below the deepest field that Belay reads.
const DEPTH_MAX: usize = 16;

/// The value of a JSON text. A part that `serde_json` refuses is `null`: a number beyond all limits, or a part that is
/// nested too deep. In a string, half of a surrogate pair is U+FFFD.
pub(in crate::telegram) fn value(text: &str) -> Value {
    part(text, 0)
}

fn part(text: &str, depth: usize) -> Value {
    if let Ok(value) = serde_json::from_str(text) {
        return value;
    }
    if depth == DEPTH_MAX {
        return Value::Null;
    }
    let inner = |raw: &RawValue| part(raw.get(), depth + 1);
    if let Ok(fields) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text) {
        return fields.into_iter().map(|(name, raw)| (name, inner(raw))).collect();
    }
    if let Ok(list) = serde_json::from_str::<Vec<&RawValue>>(text) {
        return list.into_iter().map(inner).collect();
    }
    let string = serde_json::Deserializer::from_str(text).deserialize_bytes(Lossy);
    string.map_or(Value::Null, Value::String)
}

/// Reads a string in which halves of surrogate pairs occur.
struct Lossy;

impl Visitor<'_> for Lossy {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<String, E> {
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_part_that_cannot_be_read_costs_nothing_but_itself() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let text = format!(r#"{{"a": {deep}, "b": [1e999, "x\ud83dy"], "c": {{"d": "yes"}}, "e": -1e999}}"#);
        let read = value(&text);
        assert_eq!((&read["c"]["d"], &read["e"]), (&json!("yes"), &Value::Null));
        let text = read["b"][1].as_str().unwrap_or_default();
        assert!(read["b"][0].is_null() && text.starts_with("x\u{fffd}") && text.ends_with("\u{fffd}y"), "{text}");
        assert_eq!(value(r#"{"a": [1, {"b": null}]}"#), json!({"a": [1, {"b": null}]}));
        assert_eq!(value("not json"), Value::Null);
    }
}
