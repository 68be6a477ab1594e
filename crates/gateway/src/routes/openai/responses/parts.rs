//! The parts of messages and of results.

use serde_json::{Value, json};

/// The content of a message.
pub(super) fn content_of(content: Value) -> Value {
    match content {
        Value::Array(parts) => Value::Array(parts.into_iter().filter_map(part).collect()),
        Value::Null => Value::String(String::new()),
        other => other,
    }
}

/// A part of a message; `None`: a part of an unknown type.
fn part(part: Value) -> Option<Value> {
    let Value::Object(mut fields) = part else { return None };
    let mut field = |name: &str| fields.remove(name).unwrap_or_default();
    Some(match field("type").as_str()? {
        "input_text" | "output_text" | "text" | "summary_text" => json!({"type": "text", "text": field("text")}),
        "refusal" => json!({"type": "refusal", "refusal": field("refusal")}),
        "input_image" | "image_url" => match (field("image_url"), field("file_id")) {
            (Value::String(url), _) => json!({"type": "image_url", "image_url": {"url": url}}),
            (Value::Object(url), _) => json!({"type": "image_url", "image_url": url}),
            (_, id) => json!({"type": "file", "file": {"file_id": id}}),
        },
        "input_file" => {
            let (name, data, id) = (field("filename"), field("file_data"), field("file_id"));
            json!({"type": "file", "file": {"filename": name, "file_data": data, "file_id": id}})
        }
        "input_audio" => json!({"type": "input_audio", "input_audio": field("input_audio")}),
        _ => return None,
    })
}

/// A part of a result: a text, or a part that is only named.
pub(super) fn part_of_result(mut part: Value) -> Value {
    match part["type"].as_str() {
        Some("input_text" | "output_text" | "text") => json!({"type": "text", "text": part["text"].take()}),
        kind => json!({"type": kind.unwrap_or("unknown")}),
    }
}
