//! What a tool of a server answered, as a reply for the model.

use belay_protocol::{ToolFailure, ToolOutput, ToolReply};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use crate::mcp::outside::line;

/// Longest text of one embedded resource that is shown, in bytes. 64 KiB: what a model is shown of a whole result.
const MAX_RESOURCE: usize = 64 * 1024;

/// Longest address or name of a resource that is shown, in bytes.
const MAX_ADDRESS: usize = 500;

/// Longest failure that is shown, in bytes.
const MAX_FAILURE: usize = 16 * 1024;

/// The reply. A result that calls itself an error is a failure, which the model reads.
pub(super) fn reply(result: CallToolResult) -> ToolOutput {
    let mut parts: Vec<String> = result.content.iter().map(part).collect();
    let structured = result.structured_content.filter(|value| !is_said(&result.content, value));
    parts.extend(structured.map(|value| value.to_string()));
    let text = parts.join("\n");
    match (result.is_error == Some(true), text.is_empty()) {
        (true, true) => Err(ToolFailure::failed("The tool failed and did not say why.")),
        (true, false) => Err(ToolFailure::Failed(cut(&text, MAX_FAILURE))),
        (false, true) => Ok("[the tool answered nothing]".into()),
        (false, false) => Ok(ToolReply { text, outside: true, ..ToolReply::default() }),
    }
}

fn part(content: &ContentBlock) -> String {
    match content {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => format!("[picture left out: {}]", line(&image.mime_type, 100)),
        ContentBlock::Audio(audio) => format!("[sound left out: {}]", line(&audio.mime_type, 100)),
        ContentBlock::Resource(embedded) => resource(&embedded.resource),
        ContentBlock::ResourceLink(link) => {
            format!("[resource {}: {}]", line(&link.uri, MAX_ADDRESS), line(&link.name, MAX_ADDRESS))
        }
        _ => "[left out: of a kind that Belay does not know]".into(),
    }
}

fn resource(contents: &ResourceContents) -> String {
    match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => {
            format!("[resource {}]\n{}", line(uri, MAX_ADDRESS), cut(text, MAX_RESOURCE))
        }
        ResourceContents::BlobResourceContents { uri, blob, mime_type, .. } => {
            let kind = mime_type.as_deref().unwrap_or("of unknown type");
            let bytes = blob.len() / 4 * 3;
            format!("[resource {}: {}, about {bytes} bytes, left out]", line(uri, MAX_ADDRESS), line(kind, 100))
        }
        _ => "[resource left out: of a kind that Belay does not know]".into(),
    }
}

/// Whether a text says what the structured content says, as servers do for clients that read no such content: as the
/// same JSON, or as the one value that is in it under `result`.
fn is_said(content: &[ContentBlock], structured: &Value) -> bool {
    let wrapped = structured.as_object().filter(|table| table.len() == 1).and_then(|table| table.get("result"));
    content.iter().filter_map(ContentBlock::as_text).any(|text| {
        let text = text.text.as_str();
        let same = |value: &Value| {
            value.as_str() == Some(text) || serde_json::from_str::<Value>(text).is_ok_and(|said| said == *value)
        };
        same(structured) || wrapped.is_some_and(same)
    })
}

/// The text up to so many bytes, with a mark where it was cut.
fn cut(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    format!("{}\n[… cut: {} bytes in all]", &text[..text.floor_char_boundary(max_bytes)], text.len())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn text_of(result: Value) -> Result<String, String> {
        match reply(serde_json::from_value(result).unwrap()) {
            Ok(reply) => {
                assert!(reply.pictures.is_empty());
                Ok(reply.text)
            }
            Err(ToolFailure::Failed(text)) => Err(text),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_is_what_can_be_read_of_it() {
        let text = |text: &str| json!({ "type": "text", "text": text });
        for (result, expected) in [
            (json!({ "content": [text("one"), text("two")] }), "one\ntwo"),
            (json!({ "content": [] }), "[the tool answered nothing]"),
            (
                json!({ "content": [{ "type": "image", "data": "AAAA", "mimeType": "image/png" }] }),
                "[picture left out: image/png]",
            ),
            (
                json!({ "content": [{ "type": "audio", "data": "AAAA", "mimeType": "audio/wav" }] }),
                "[sound left out: audio/wav]",
            ),
            (
                json!({ "content": [{ "type": "resource", "resource": { "uri": "file:///a", "text": "inside" } }] }),
                "[resource file:///a]\ninside",
            ),
            (
                json!({ "content": [{ "type": "resource", "resource": { "uri": "file:///a", "blob": "AAAA", "mimeType": "x/y" } }] }),
                "[resource file:///a: x/y, about 3 bytes, left out]",
            ),
            (
                json!({ "content": [{ "type": "resource_link", "uri": "file:///a", "name": "A" }] }),
                "[resource file:///a: A]",
            ),
            (json!({ "content": [], "structuredContent": { "n": 1 } }), r#"{"n":1}"#),
            (json!({ "content": [text("see below")], "structuredContent": { "n": 1 } }), "see below\n{\"n\":1}"),
            (json!({ "content": [text("{ \"n\": 1 }")], "structuredContent": { "n": 1 } }), "{ \"n\": 1 }"),
            (json!({ "content": [text("3")], "structuredContent": { "result": 3 } }), "3"),
            (json!({ "content": [text("three")], "structuredContent": { "result": "three" } }), "three"),
        ] {
            assert_eq!(text_of(result.clone()).as_deref(), Ok(expected), "{result}");
        }
    }

    #[test]
    fn an_error_is_a_failure_that_the_model_reads() {
        let failed = json!({ "content": [{ "type": "text", "text": "no such city" }], "isError": true });
        assert_eq!(text_of(failed), Err("no such city".into()));
        assert_eq!(
            text_of(json!({ "content": [], "isError": true })),
            Err("The tool failed and did not say why.".into())
        );
    }

    #[test]
    fn a_long_resource_is_cut() {
        let long = "ß".repeat(MAX_RESOURCE);
        let text =
            text_of(json!({ "content": [{ "type": "resource", "resource": { "uri": "u", "text": long } }] })).unwrap();
        assert!(text.len() < MAX_RESOURCE + 100 && text.ends_with("[… cut: 131072 bytes in all]"), "{}", text.len());
    }
}
