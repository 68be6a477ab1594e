//! The shapes in which models submit outputs, and JSON in a text. Pure.

use serde_json::{Map, Value};

/// The names under which models put the object of all outputs.
const WRAPPERS: [&str; 2] = ["outputs", "values"];

/// Levels of wrappers, lists and JSON texts around the values. 4: a JSON text of a wrapper with a list of pairs.
const MAX_DEPTH: u32 = 4;

/// The submitted values by name: `{"name": …, "value": …}`, an object of declared names, either of them in a wrapper, a
/// list of these, or the JSON text of any of them. `None`: none of these shapes.
pub(super) fn submitted(given: &Value, declared: &[&str]) -> Option<Vec<(String, Value)>> {
    let mut values = Vec::new();
    read(given, declared, MAX_DEPTH, &mut values)?;
    (!values.is_empty()).then_some(values)
}

fn read(given: &Value, declared: &[&str], depth: u32, values: &mut Vec<(String, Value)>) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    match given {
        Value::Object(fields) => read_object(fields, declared, depth, values),
        Value::Array(items) => items.iter().try_for_each(|item| read(item, declared, depth, values)),
        Value::String(text) => read(&serde_json::from_str(text).ok()?, declared, depth, values),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn read_object(
    fields: &Map<String, Value>,
    declared: &[&str],
    depth: u32,
    values: &mut Vec<(String, Value)>,
) -> Option<()> {
    if let (Some(name), Some(value)) = (fields.get("name").and_then(Value::as_str), fields.get("value"))
        && declared.contains(&name)
    {
        values.push((name.to_owned(), value.clone()));
        return Some(());
    }
    if fields.keys().all(|name| declared.contains(&name.as_str())) {
        values.extend(fields.clone());
        return Some(());
    }
    let wrapped = WRAPPERS.iter().find_map(|wrapper| fields.get(*wrapper)).filter(|_| fields.len() == 1)?;
    read(wrapped, declared, depth, values)
}

/// The arguments of a call that are not a JSON object, as one: a list, or the JSON text of an object or a list.
pub(super) fn wrapped(raw: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str::<Value>(raw).ok()? {
        Value::Object(fields) => Some(fields),
        value @ (Value::Array(_) | Value::String(_)) => Some(Map::from_iter([(WRAPPERS[0].to_owned(), value)])),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Whether a schema names a field in any of its `properties`.
// The recursion is bounded, because the depth of declared schemas is.
pub(super) fn names_field(schema: &Value, field: &str) -> bool {
    match schema {
        Value::Object(parts) => {
            let properties = parts.get("properties").and_then(Value::as_object);
            properties.is_some_and(|properties| properties.contains_key(field))
                || parts.values().any(|part| names_field(part, field))
        }
        Value::Array(parts) => parts.iter().any(|part| names_field(part, field)),
        _ => false,
    }
}

/// The JSON that a text consists of, bare or in one code fence. `among_words`: words around the only fence do not matter.
pub(super) fn json_in(text: &str, among_words: bool) -> Option<Value> {
    let text = text.trim();
    if let Ok(value) = serde_json::from_str(text) {
        return Some(value);
    }
    ["```", "~~~"].iter().find_map(|fence| {
        let (before, rest) = text.split_once(fence)?;
        let (inner, behind) = rest.rsplit_once(fence)?;
        let alone = before.is_empty() && behind.is_empty();
        if !alone && !among_words {
            return None;
        }
        // Longer fences have more of the same character.
        let inner = inner.trim_matches(['`', '~']);
        let unnamed = inner.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
        [inner, unnamed].into_iter().find_map(|json| serde_json::from_str(json).ok())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_found_in_each_shape() {
        let pairs = |a: Value, b: Value| Some(vec![("a".to_owned(), a), ("b".to_owned(), b)]);
        for (given, expected) in [
            (json!({"a": 1, "b": 2}), pairs(json!(1), json!(2))),
            (json!({"outputs": {"a": 1, "b": 2}}), pairs(json!(1), json!(2))),
            (json!({"values": [{"name": "a", "value": 1}, {"b": null}]}), pairs(json!(1), Value::Null)),
            (json!(r#"{"outputs":"{\"a\":1,\"b\":2}"}"#), pairs(json!(1), json!(2))),
            (json!({"name": "c", "value": 1}), None),
            (json!({"a": 1, "c": 2}), None),
            (json!({"outputs": {"a": 1, "b": 2}, "note": "done"}), None),
            (json!([[[[[{"a": 1}]]]]]), None),
            (json!({}), None),
            (json!(7), None),
        ] {
            assert_eq!(submitted(&given, &["a", "b"]), expected, "{given}");
        }
        // Names of outputs come before the words of a shape.
        let named = submitted(&json!({"name": "x", "value": 1}), &["name", "value"]).expect("both are declared");
        assert_eq!(named, [("name".to_owned(), json!("x")), ("value".to_owned(), json!(1))]);
        let wrapper = submitted(&json!({"outputs": {"a": 1}}), &["a", "outputs"]).expect("it is declared");
        assert_eq!(wrapper, [("outputs".to_owned(), json!({"a": 1}))]);
    }

    #[test]
    fn json_is_a_text_or_the_content_of_its_fence() {
        let fenced = "```json\n{\"a\":\"```\"}\n```";
        for (text, alone, among_words) in [
            (" 7 ", Some(json!(7)), Some(json!(7))),
            (fenced, Some(json!({"a": "```"})), Some(json!({"a": "```"}))),
            ("````JSON5\n[1]\n````", Some(json!([1])), Some(json!([1]))),
            ("```5```", Some(json!(5)), Some(json!(5))),
            ("See:\n```json\n[1]\n```\nDone.", None, Some(json!([1]))),
            ("```json\n[1]\n```\nor\n```json\n[2]\n```", None, None),
            ("```json\n[1", None, None),
            ("See: [1]", None, None),
            ("", None, None),
        ] {
            assert_eq!((json_in(text, false), json_in(text, true)), (alone, among_words), "{text}");
        }
    }
}
