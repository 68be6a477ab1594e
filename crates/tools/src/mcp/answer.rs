//! Converts the result of a server's tool to a reply for the model.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belay_protocol::{ToolFailure, ToolOutput, ToolReply};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::mcp::untrusted::line;
use crate::picture::{Cleaned, PictureError, Pictures};

/// Longest text of one embedded resource in a reply, in bytes. 64 KiB: as much as the model sees of a whole result.
const MAX_RESOURCE: usize = 64 * 1024;

/// Longest URI or name of a resource in a reply, in bytes.
const MAX_ADDRESS: usize = 500;

/// Longest failure text, in bytes.
const MAX_FAILURE: usize = 16 * 1024;

/// Most pictures in one reply. 4: each uses some thousand tokens.
const MAX_PICTURES: usize = 4;

/// Converts a result to a reply. A result with `isError` becomes a failure for the model.
///
/// # Cancel safety
/// If the future is dropped, only the reply is lost.
pub(super) async fn reply(result: CallToolResult, cleaner: &Pictures, cancel: &CancellationToken) -> ToolOutput {
    let (mut parts, mut pictures) = (Vec::new(), Vec::new());
    for content in &result.content {
        let ContentBlock::Image(image) = content else {
            parts.push(part(content));
            continue;
        };
        match picture(image.data.clone(), pictures.len(), cleaner, cancel).await {
            Ok(cleaned) => {
                parts.push(format!("[{cleaned}]"));
                pictures.push(cleaned.picture);
            }
            Err(PictureError::Cancelled) => return Err(ToolFailure::Cancelled),
            Err(PictureError::Unreadable(why)) => parts.push(format!("[picture left out: {why}]")),
        }
    }
    let structured = result.structured_content.filter(|value| !repeats(&result.content, value));
    parts.extend(structured.map(|value| value.to_string()));
    let text = parts.join("\n");
    match (result.is_error == Some(true), text.is_empty()) {
        (true, true) => Err(ToolFailure::failed("The tool failed and did not say why.")),
        (true, false) => Err(ToolFailure::Failed(cut(&text, MAX_FAILURE))),
        (false, true) => Ok("[the tool answered nothing]".into()),
        (false, false) => Ok(ToolReply { text, pictures, untrusted: true, ..ToolReply::default() }),
    }
}

/// Re-encodes a picture, so that only its pixels remain.
async fn picture(
    base64: String,
    before: usize,
    cleaner: &Pictures,
    cancel: &CancellationToken,
) -> Result<Cleaned, PictureError> {
    if before == MAX_PICTURES {
        return Err(PictureError::Unreadable(format!("only the first {MAX_PICTURES} are shown")));
    }
    let decode = move || STANDARD.decode(base64).map_err(|_| "its base64 is broken".to_owned());
    cleaner.clean(decode, cancel).await
}

fn part(content: &ContentBlock) -> String {
    match content {
        ContentBlock::Text(text) => text.text.clone(),
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

/// Whether the content repeats the structured content, as servers do for clients that ignore the latter. The content
/// may repeat all of it, or its single value (`{"result": …}` of the Python SDK, `{"content": …}` of the reference
/// servers). It may do so as a text, as JSON, as one text per list item, or as the list of content blocks itself.
fn repeats(content: &[ContentBlock], structured: &Value) -> bool {
    let wrapped = structured.as_object().filter(|table| table.len() == 1).and_then(|table| table.values().next());
    let texts: Vec<&str> = content.iter().filter_map(ContentBlock::as_text).map(|text| text.text.trim()).collect();
    let matches = |text: &str, value: &Value| {
        value.as_str().map(str::trim) == Some(text)
            || serde_json::from_str::<Value>(text).is_ok_and(|parsed| parsed == *value)
    };
    let whole = texts.join("\n");
    let same = |value: &Value| {
        texts.iter().any(|text| matches(text, value))
            || matches(&whole, value)
            || value.as_array().is_some_and(|items| {
                items.len() == texts.len() && items.iter().zip(&texts).all(|(item, text)| matches(text, item))
            })
            || serde_json::to_value(content).is_ok_and(|blocks| blocks == *value)
    };
    same(structured) || wrapped.is_some_and(same)
}

/// Cuts the text to at most this many bytes, with a note about the cut.
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

    async fn of(result: Value) -> ToolOutput {
        reply(serde_json::from_value(result).unwrap(), &Pictures::new(), &CancellationToken::new()).await
    }

    async fn text_of(result: Value) -> Result<String, String> {
        match of(result).await {
            Ok(reply) => {
                assert!(reply.pictures.is_empty());
                Ok(reply.text)
            }
            Err(ToolFailure::Failed(text)) => Err(text),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_result_becomes_readable_text() {
        let text = |text: &str| json!({ "type": "text", "text": text });
        for (result, expected) in [
            (json!({ "content": [text("one"), text("two")] }), "one\ntwo"),
            (json!({ "content": [] }), "[the tool answered nothing]"),
            (
                json!({ "content": [{ "type": "image", "data": "AAAA", "mimeType": "image/png" }] }),
                "[picture left out: ",
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
            // The reference servers.
            (json!({ "content": [text("a file\n")], "structuredContent": { "content": "a file\n" } }), "a file\n"),
            (json!({ "content": [text("x")], "structuredContent": { "content": [text("x")] } }), "x"),
            // The Python SDK, for a list.
            (
                json!({ "content": [text("a"), text("{\"n\":1}")], "structuredContent": { "result": ["a", { "n": 1 }] } }),
                { "a\n{\"n\":1}" },
            ),
            (json!({ "content": [text("{\"n\":"), text("1}")], "structuredContent": { "n": 1 } }), "{\"n\":\n1}"),
            (json!({ "content": [text("a")], "structuredContent": { "result": ["a", "b"] } }), {
                "a\n{\"result\":[\"a\",\"b\"]}"
            }),
        ] {
            let text = text_of(result.clone()).await.unwrap();
            assert!(text == expected || (expected.ends_with(": ") && text.starts_with(expected)), "{result}: {text}");
        }
    }

    #[tokio::test]
    async fn an_error_is_a_failure_that_the_model_reads() {
        let failed = json!({ "content": [{ "type": "text", "text": "no such city" }], "isError": true });
        assert_eq!(text_of(failed).await, Err("no such city".into()));
        assert_eq!(
            text_of(json!({ "content": [], "isError": true })).await,
            Err("The tool failed and did not say why.".into())
        );
    }

    #[tokio::test]
    async fn a_long_resource_is_cut() {
        let long = "ß".repeat(MAX_RESOURCE);
        let text = text_of(json!({ "content": [{ "type": "resource", "resource": { "uri": "u", "text": long } }] }))
            .await
            .unwrap();
        assert!(text.len() < MAX_RESOURCE + 100 && text.ends_with("[… cut: 131072 bytes in all]"), "{}", text.len());
    }

    #[tokio::test]
    async fn pictures_are_shown_up_to_a_bound_as_pixels_alone() {
        let mut png = std::io::Cursor::new(Vec::new());
        image::RgbImage::new(3, 2).write_to(&mut png, image::ImageFormat::Png).unwrap();
        let block = json!({ "type": "image", "data": STANDARD.encode(png.into_inner()), "mimeType": "image/gif" });
        let reply = of(json!({ "content": vec![block; MAX_PICTURES + 1] })).await.unwrap();
        assert_eq!(reply.pictures.len(), MAX_PICTURES);
        let lines: Vec<_> = reply.text.lines().collect();
        assert!(lines[0].starts_with("[PNG picture, 3 x 2 pixels"), "{lines:?}");
        assert_eq!(lines[MAX_PICTURES], "[picture left out: only the first 4 are shown]");
    }
}
