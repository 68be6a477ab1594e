//! The text of a content, with a name for each part that is not text.

use serde_json::Value;

/// Fields in which a part has its data or its address, in the formats that are read.
const DATA: &[&str] = &["data", "image_url", "url", "uri", "file_id", "file_data", "fileUri", "content", "bytes"];

/// The text of a content: a string, or the texts of its parts, one a line. A picture or another part without text is
/// named: `[image image/png 5f3a9c01]`. The digest tells different pictures apart.
pub(super) fn text_of(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(part_text).collect::<Vec<_>>().join("\n"),
        Some(Value::Object(_)) => content.and_then(part_text).unwrap_or_default(),
        _ => String::new(),
    }
}

/// The same for the result of a call: a value without text, and a part without text or name, is its JSON. Results that
/// differ thus stay different.
pub(super) fn text_or_json(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) if parts.is_empty() => String::new(),
        Some(Value::Array(parts)) if parts.iter().any(|part| part_text(part).is_some()) => {
            let texts = parts.iter().map(|part| part_text(part).unwrap_or_else(|| part.to_string()));
            texts.collect::<Vec<_>>().join("\n")
        }
        Some(value) => part_text(value).filter(|text| !text.is_empty()).unwrap_or_else(|| value.to_string()),
    }
}

/// The text of a part, or its name if it is a picture or the like. `None`: it is neither.
pub(super) fn part_text(part: &Value) -> Option<String> {
    let text = part.as_str().or_else(|| ["text", "refusal"].iter().find_map(|key| part.get(*key)?.as_str()));
    text.map(str::to_owned).or_else(|| named(part))
}

/// The name of a part without text. `None`: it is no such part.
pub(super) fn named(part: &Value) -> Option<String> {
    let object = part.as_object()?;
    // Gemini names no type, but has the data below this key.
    let inline = ["inlineData", "inline_data", "fileData", "file_data"].iter().find_map(|key| object.get(*key));
    let kind = match (object.get("type").and_then(Value::as_str), inline) {
        (Some(kind), _) => kind.trim_start_matches("input_").trim_end_matches("_url"),
        (None, Some(_)) => "data",
        (None, None) => return None,
    };
    if !matches!(
        kind,
        "image" | "audio" | "video" | "document" | "file" | "resource" | "blob" | "uri" | "data" | "image_file"
    ) {
        return None;
    }
    let inner = inline.or_else(|| object.get("source").filter(|source| source.is_object())).unwrap_or(part);
    let word = |keys: &[&str]| keys.iter().find_map(|key| inner.get(*key)?.as_str());
    let media = word(&["media_type", "mimeType", "mime_type", "mime", "filename"]).unwrap_or_default();
    let data = DATA.iter().find_map(|key| inner.get(*key)).map(Value::to_string).unwrap_or_default();
    let space = if media.is_empty() { "" } else { " " };
    Some(format!("[{kind}{space}{media} {:08x}]", digest(&data)))
}

/// FNV-1a: the same on each machine and in each version.
fn digest(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// A string field; empty if it is missing.
pub(super) fn field<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A list field; empty if it is missing.
pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A number field; 0 if it is missing.
pub(super) fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or(0)
}
