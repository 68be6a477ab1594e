//! Converts the result of a server's tool to a reply for the model.

use belay_protocol::{ToolFailure, ToolOutput, ToolReply};
use rmcp::model::{CustomResult, ServerResult};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::mcp::parts::{Part, cut, decoded, parts};
use crate::picture::{Cleaned, PictureError, Pictures};

/// Longest failure text, in bytes.
const MAX_FAILURE: usize = 16 * 1024;

/// Most pictures in one reply. 4: each uses some thousand tokens.
const MAX_PICTURES: usize = 4;

/// The result of a server's tool, as it was sent.
#[derive(Debug)]
pub(super) struct Answer {
    result: Map<String, Value>,
    /// What the server asked for in vain during the call.
    pub(super) refused: Option<String>,
}

impl Answer {
    /// The result of a call. `None`: it is the result of another request. The SDK passes a result on as it is if a part
    /// of it is malformed.
    pub(super) fn read(result: ServerResult) -> Option<Self> {
        let value = match result {
            ServerResult::CallToolResult(result) => serde_json::to_value(result).ok()?,
            ServerResult::CustomResult(CustomResult(value)) => value,
            ServerResult::EmptyResult(_) | ServerResult::TaskAckResult(_) => Value::Object(Map::new()),
            _ => return None,
        };
        let Value::Object(mut table) = value else { return None };
        // The form of the revision 2024-10-07.
        if let Some(Value::Object(inner)) = table.remove("toolResult") {
            table.extend(inner);
        }
        let known = ["content", "structuredContent", "isError"].iter().any(|key| table.contains_key(*key));
        (known || table.keys().all(|key| key == "_meta")).then_some(Self { result: table, refused: None })
    }

    /// Adds what the server asked for in vain during the call.
    pub(super) fn after(self, refused: Option<String>) -> Self {
        Self { refused, ..self }
    }

    fn is_error(&self) -> bool {
        match self.result.get("isError") {
            Some(Value::String(text)) => text.trim().eq_ignore_ascii_case("true"),
            value => value == Some(&Value::Bool(true)),
        }
    }

    fn take(&mut self, key: &str) -> Value {
        self.result.remove(key).unwrap_or_default()
    }
}

/// Converts a result to a reply. A result with `isError` becomes a failure for the model.
///
/// # Cancel safety
/// If the future is dropped, only the reply is lost.
pub(super) async fn reply(mut answer: Answer, cleaner: &Pictures, cancel: &CancellationToken) -> ToolOutput {
    let (mut texts, mut pictures) = (Vec::new(), Vec::new());
    let is_error = answer.is_error();
    let (content, structured) = (answer.take("content"), answer.take("structuredContent"));
    let parts = parts(&content);
    let repeated = structured.is_null() || repeats(&content, &parts, &structured);
    for part in parts {
        let (of, base64) = match part {
            Part::Text(text) | Part::Other(text) => {
                texts.push(text);
                continue;
            }
            Part::Picture { of, base64 } => (of, base64),
        };
        match picture(base64, pictures.len(), cleaner, cancel).await {
            Ok(cleaned) => {
                texts.push(format!("[{of}{cleaned}]"));
                pictures.push(cleaned.picture);
            }
            Err(PictureError::Cancelled) => return Err(ToolFailure::Cancelled),
            Err(PictureError::Unreadable(why)) => texts.push(format!("[{of}picture left out: {why}]")),
        }
    }
    texts.extend((!repeated).then(|| structured.to_string()));
    let text = texts.join("\n");
    match (is_error, text.is_empty()) {
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
    cleaner.clean(move || decoded(&base64).ok_or_else(|| "its base64 is broken".to_owned()), cancel).await
}

/// Whether the content repeats the structured content, as servers do for clients that ignore the latter. The content
/// may repeat all of it, or its single value (`{"result": …}` of the Python SDK, `{"content": …}` of the reference
/// servers). It may do so as a text, as JSON, as one text per list item, or as the list of content blocks itself.
fn repeats(content: &Value, parts: &[Part], structured: &Value) -> bool {
    let wrapped = structured.as_object().filter(|table| table.len() == 1).and_then(|table| table.values().next());
    let texts: Vec<&str> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Text(text) => Some(text.trim()),
            _ => None,
        })
        .collect();
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
            || content == value
    };
    same(structured) || wrapped.is_some_and(same)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    use super::*;
    use crate::mcp::parts::MAX_RESOURCE;

    async fn of(result: Value) -> ToolOutput {
        let answer = Answer::read(serde_json::from_value(result).unwrap()).unwrap();
        reply(answer, &Pictures::new(), &CancellationToken::new()).await
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
                "[resource file:///a: x/y, 3 bytes, left out]",
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
        let reply = of(json!({ "content": vec![block.clone(); MAX_PICTURES + 1] })).await.unwrap();
        assert_eq!(reply.pictures.len(), MAX_PICTURES);
        let lines: Vec<_> = reply.text.lines().collect();
        assert!(lines[0].starts_with("[PNG picture, 3 x 2 pixels"), "{lines:?}");
        assert_eq!(lines[MAX_PICTURES], "[picture left out: only the first 4 are shown]");
        let blob = json!({ "uri": "file:///a.png", "blob": block["data"], "mimeType": "image/png" });
        let reply = of(json!({ "content": [{ "type": "resource", "resource": blob }] })).await.unwrap();
        assert_eq!(reply.pictures.len(), 1);
        assert!(reply.text.starts_with("[resource file:///a.png: PNG picture, 3 x 2 pixels"), "{}", reply.text);
    }
}
