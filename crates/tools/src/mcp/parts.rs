//! Reads the parts of a server's answer. A part that cannot be read costs that part, never the text beside it.

use base64::Engine as _;
use base64::engine::general_purpose::GeneralPurpose;
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};
use serde_json::Value;

use crate::mcp::untrusted::line;
use crate::picture::{SNIFFED_BYTES, format_of};

/// Longest text of one embedded resource in a reply, in bytes. 64 KiB: as much as the model sees of a whole result.
pub(super) const MAX_RESOURCE: usize = 64 * 1024;

/// Longest URI or name of a resource in a reply, in bytes.
const MAX_ADDRESS: usize = 500;

/// Longest name of a type in a reply, in bytes.
const MAX_KIND: usize = 100;

/// Base64 with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A part of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A text block.
    Text(String),
    /// Another part, as a text.
    Other(String),
    /// A picture in base64. `of`: the resource that has it, as the beginning of a line; may be empty.
    Picture { of: String, base64: String },
}

/// The parts of an answer's content, which should be a list.
pub(super) fn parts(content: &Value) -> Vec<Part> {
    match content {
        Value::Null => Vec::new(),
        Value::Array(items) => items.iter().map(part).collect(),
        other => vec![part(other)],
    }
}

fn part(item: &Value) -> Part {
    let text = |key: &str| item[key].as_str();
    let kind = || line(text("mimeType").unwrap_or("of unknown type"), MAX_KIND);
    match (text("type"), item) {
        (_, Value::String(text)) => Part::Text(text.clone()),
        (Some("text") | None, _) if text("text").is_some() => Part::Text(text("text").unwrap_or_default().to_owned()),
        (Some("text"), _) => Part::Other("[left out: a text without text]".into()),
        (Some("image"), _) => match text("data") {
            Some(data) => Part::Picture { of: String::new(), base64: data.to_owned() },
            None => Part::Other("[picture left out: it has no data]".into()),
        },
        (Some("audio"), _) => Part::Other(format!("[sound left out: {}]", kind())),
        (Some("resource"), _) => resource(&item["resource"]),
        (Some("resource_link"), _) => match text("uri") {
            Some(uri) => {
                let name = line(text("name").unwrap_or(uri), MAX_ADDRESS);
                Part::Other(format!("[resource {}: {name}]", line(uri, MAX_ADDRESS)))
            }
            None => Part::Other("[left out: a link without an address]".into()),
        },
        (Some(other), _) => {
            let kind = line(other, MAX_KIND);
            match (text("text"), &item["json"]) {
                (Some(text), _) => Part::Other(format!("[a part of the type {kind}]\n{}", cut(text, MAX_RESOURCE))),
                (None, Value::Null) => Part::Other(format!("[left out: a part of the type {kind}]")),
                (None, json) => {
                    Part::Other(format!("[a part of the type {kind}]\n{}", cut(&json.to_string(), MAX_RESOURCE)))
                }
            }
        }
        (None, _) => Part::Other("[left out: a part without a type]".into()),
    }
}

fn resource(contents: &Value) -> Part {
    let text = |key: &str| contents[key].as_str();
    let of = match text("uri").map(|uri| line(uri, MAX_ADDRESS)) {
        Some(uri) if !uri.is_empty() => format!("resource {uri}"),
        _ => "resource".into(),
    };
    let shown = |text: &str| Part::Other(format!("[{of}]\n{}", cut(text, MAX_RESOURCE)));
    match (text("text"), text("blob")) {
        (Some(text), _) => shown(text),
        (None, Some(blob)) => {
            let media = text("mimeType").unwrap_or_default();
            let Some(bytes) = decoded(blob) else {
                return Part::Other(format!("[{of} left out: its base64 is broken]"));
            };
            let is_picture =
                media.starts_with("image/") || format_of(&bytes[..bytes.len().min(SNIFFED_BYTES)]).is_some();
            if is_picture && !media.starts_with("image/svg") {
                return Part::Picture { of: format!("{of}: "), base64: blob.to_owned() };
            }
            match text_of(&bytes, media) {
                Some(text) => shown(&text),
                None => {
                    let media = if media.is_empty() { "of unknown type" } else { media };
                    Part::Other(format!("[{of}: {}, {} bytes, left out]", line(media, MAX_KIND), bytes.len()))
                }
            }
        }
        (None, None) => Part::Other("[left out: a resource without contents]".into()),
    }
}

/// The bytes of base64, as servers write it: also as a data URL, with line breaks, without padding, or in the alphabet
/// for URLs. `None`: it is broken.
pub(super) fn decoded(base64: &str) -> Option<Vec<u8>> {
    let data = base64.strip_prefix("data:").and_then(|url| url.split_once(";base64,")).map_or(base64, |(_, data)| data);
    let standard = |byte: u8| match byte {
        b'-' => b'+',
        b'_' => b'/',
        other => other,
    };
    let bytes: Vec<u8> = data.bytes().filter(|byte| !byte.is_ascii_whitespace()).map(standard).collect();
    BASE64.decode(bytes).ok()
}

/// The text of a blob. `None`: it is none, or its type is that of something else.
fn text_of(bytes: &[u8], media: &str) -> Option<String> {
    let media = media.to_ascii_lowercase();
    let (kind, parameters) = media.split_once(';').unwrap_or((&media, ""));
    let kind = kind.trim();
    let written = ["json", "xml", "yaml", "toml", "javascript", "csv", "x-sh", "sql"];
    let is_text = kind.starts_with("text/") || written.iter().any(|word| kind.ends_with(word));
    if !is_text && !["", "application/octet-stream", "image/svg+xml"].contains(&kind) {
        return None;
    }
    let charset = parameters.split(';').find_map(|parameter| parameter.trim().strip_prefix("charset="));
    let encoding = charset.and_then(|name| encoding_rs::Encoding::for_label(name.trim_matches('"').as_bytes()));
    match std::str::from_utf8(bytes) {
        Ok(text) if encoding.is_none_or(|encoding| encoding == encoding_rs::UTF_8) => {
            (is_text || !text.contains('\0')).then(|| text.to_owned())
        }
        // A text of another or a wrongly named encoding.
        _ if is_text => Some(encoding.unwrap_or(encoding_rs::UTF_8).decode(bytes).0.into_owned()),
        _ => None,
    }
}

/// Cuts the text to at most this many bytes, with a note about the cut.
pub(super) fn cut(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    format!("{}\n[… cut: {} bytes in all]", &text[..text.floor_char_boundary(max_bytes)], text.len())
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_blob_is_shown_if_it_is_a_text_or_a_picture() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
        let text = |text: &str| Part::Other(format!("[resource u]\n{text}"));
        let note = |note: &str| Part::Other(format!("[resource u: {note}, left out]"));
        for (bytes, media, expected) in [
            (&b"a,b"[..], json!("text/csv"), text("a,b")),
            (b"a,b", json!("application/vnd.x+json; charset=utf-8"), text("a,b")),
            (b"a,b", json!(null), text("a,b")),
            (b"a,b", json!(7), text("a,b")),
            (b"<svg/>", json!("image/svg+xml"), text("<svg/>")),
            (b"gr\xfc\xdfe", json!("text/plain; charset=\"ISO-8859-1\""), text("grüße")),
            (b"gr\xfc", json!("text/plain"), text("gr\u{fffd}")),
            (b"\0\x01", json!(null), note("of unknown type, 2 bytes")),
            (b"\xff\xfe", json!("application/octet-stream"), note("application/octet-stream, 2 bytes")),
            (b"%PDF", json!("application/pdf"), note("application/pdf, 4 bytes")),
        ] {
            let blob = |base64: String| json!({ "type": "resource", "resource": { "uri": "u", "blob": base64, "mimeType": media } });
            assert_eq!(part(&blob(STANDARD.encode(bytes))), expected, "{media}");
            assert_eq!(part(&blob(URL_SAFE_NO_PAD.encode(bytes))), expected, "{media}");
        }
        for media in [json!("image/png"), json!(null), json!("application/octet-stream")] {
            let base64 = STANDARD.encode(png);
            let blob = json!({ "type": "resource", "resource": { "blob": base64, "mimeType": media } });
            assert_eq!(part(&blob), Part::Picture { of: "resource: ".into(), base64 }, "{media}");
        }
        let broken = json!({ "type": "resource", "resource": { "uri": "u", "blob": "?" } });
        assert_eq!(part(&broken), Part::Other("[resource u left out: its base64 is broken]".into()));
    }

    #[test]
    fn base64_is_read_as_servers_write_it() {
        for text in ["YWI/", "YWI_", "data:image/png;base64,YWI/", "YW\r\nI/\n"] {
            assert_eq!(decoded(text).as_deref(), Some(&b"ab?"[..]), "{text}");
        }
        for text in ["YQ==", "YQ"] {
            assert_eq!(decoded(text).as_deref(), Some(&b"a"[..]), "{text}");
        }
        assert_eq!(decoded("?"), None);
    }
}
