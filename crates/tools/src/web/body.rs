//! Reads response bodies up to a limit and decodes them to text.

use encoding_rs::{Encoding, UTF_8};
use reqwest::Response;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE};

use super::page_client::innermost;

/// Number of bytes that are searched for a page's charset declaration. HTML standard, "prescan a byte stream": 1024.
const PRESCAN_BYTES: usize = 1024;

/// The kind of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Html,
    /// Any other text, shown unchanged.
    Text,
    Picture,
    Other,
}

/// The media type of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MediaType {
    /// For example `text/html`; empty if the server sends none.
    pub(super) essence: String,
    charset: Option<String>,
}

impl MediaType {
    pub(super) fn of(response: &Response) -> Self {
        let value = response.headers().get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
        Self::read(&value.unwrap_or_default())
    }

    fn read(value: &str) -> Self {
        let mut parts = value.split(';');
        let essence: String = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
        let known = essence.bytes().all(|b| b.is_ascii_alphanumeric() || b"/+-._".contains(&b)) && essence.len() <= 100;
        let charset = parts.filter_map(|part| part.split_once('=')).find_map(|(name, value)| {
            name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches(['"', '\'']).to_owned())
        });
        Self { essence: if known { essence } else { String::new() }, charset }
    }

    /// The kind of the body. Without a media type, the first bytes decide.
    pub(super) fn kind(&self, body: &[u8]) -> Kind {
        let essence = self.essence.as_str();
        match essence.split_once('/') {
            _ if matches!(essence, "text/html" | "application/xhtml+xml") => Kind::Html,
            Some(("image", "svg+xml")) => Kind::Text,
            Some(("image", _)) => Kind::Picture,
            Some(("text", _)) => text_unless_binary(body),
            Some(("application", what)) if is_text(what) => text_unless_binary(body),
            None => {
                let begin: Vec<u8> = body.trim_ascii_start().iter().take(14).map(u8::to_ascii_lowercase).collect();
                let html = begin.starts_with(b"<!doctype html") || begin.starts_with(b"<html");
                if html { Kind::Html } else { text_unless_binary(body) }
            }
            Some(_) => Kind::Other,
        }
    }

    /// Decodes the body. Uses the byte order mark, the charset of the header, the charset of the page, or else UTF-8.
    /// Invalid bytes become �.
    pub(super) fn decode(&self, body: &[u8]) -> String {
        let named = self.charset.as_deref().and_then(|label| Encoding::for_label(label.as_bytes()));
        let encoding = named.or_else(|| declared_charset(body)).unwrap_or(UTF_8);
        encoding.decode(body).0.into_owned()
    }
}

fn is_text(subtype: &str) -> bool {
    const NAMES: &[&str] =
        &["json", "xml", "javascript", "ecmascript", "yaml", "x-yaml", "toml", "x-sh", "sql", "graphql", "x-ndjson"];
    NAMES.contains(&subtype) || subtype.ends_with("+json") || subtype.ends_with("+xml") || subtype.ends_with("+yaml")
}

/// Only UTF-16 and UTF-32 texts contain zero bytes, and these begin with a byte order mark.
fn text_unless_binary(body: &[u8]) -> Kind {
    let marked = Encoding::for_bom(body).is_some();
    if !marked && body.contains(&0) { Kind::Other } else { Kind::Text }
}

/// Reads the charset from `<meta charset=…>` or `content="text/html; charset=…"`.
fn declared_charset(body: &[u8]) -> Option<&'static Encoding> {
    let head = body[..body.len().min(PRESCAN_BYTES)].to_ascii_lowercase();
    let head = String::from_utf8_lossy(&head);
    let meta = &head[head.find("<meta")?..];
    let rest = meta[meta.find("charset=")? + "charset=".len()..].trim_start_matches(['"', '\'', ' ']);
    let label: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || "-_:".contains(*c)).collect();
    // A page that declares UTF-16 in ASCII letters is wrong. HTML standard, "prescan", step 11.
    Encoding::for_label(label.as_bytes()).filter(|encoding| encoding.is_ascii_compatible())
}

/// A body that was read.
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    /// Whether the body was longer than the limit.
    pub(super) cut: bool,
}

/// Reads a body up to `max` bytes, counted after decompression. So a compressed body never uses more memory than that.
///
/// # Errors
/// Why the body could not be read, for the model.
///
/// # Cancel safety
/// If the future is dropped, the connection is closed.
pub(super) async fn read(mut response: Response, max: usize) -> Result<Body, String> {
    // The client removes this header from a body that it decompresses.
    if let Some(packed) = response.headers().get(CONTENT_ENCODING).filter(|packed| packed.as_bytes() != b"identity") {
        let packed: String = String::from_utf8_lossy(packed.as_bytes()).chars().take(40).collect();
        return Err(format!("The page is packed as {packed:?}, which was not asked for and is not read."));
    }
    let mut bytes = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                let remaining = max - bytes.len();
                bytes.extend_from_slice(&chunk[..chunk.len().min(remaining)]);
                if chunk.len() > remaining {
                    return Ok(Body { bytes, cut: true });
                }
            }
            Ok(None) => return Ok(Body { bytes, cut: false }),
            Err(error) if error.is_timeout() => return Err("The page stopped coming before it was whole.".into()),
            Err(error) => return Err(format!("The page broke off: {}.", innermost(&error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_body_follows_from_its_type_or_its_first_bytes() {
        for (header, body, kind) in [
            ("text/html; charset=utf-8", "", Kind::Html),
            ("Application/XHTML+XML", "", Kind::Html),
            ("text/plain", "hello", Kind::Text),
            ("text/plain", "a\0b", Kind::Other),
            ("application/json", "{}", Kind::Text),
            ("application/problem+json", "{}", Kind::Text),
            ("application/rss+xml", "<rss/>", Kind::Text),
            ("image/svg+xml", "<svg/>", Kind::Text),
            ("image/png", "", Kind::Picture),
            ("application/pdf", "%PDF", Kind::Other),
            ("application/octet-stream", "text after all", Kind::Other),
            ("video/mp4", "", Kind::Other),
            ("", " \n<!DOCTYPE html><p>x", Kind::Html),
            ("", "<HTML>", Kind::Html),
            ("", "plain", Kind::Text),
            ("", "\u{0}", Kind::Other),
            ("nonsense", "<html>", Kind::Html),
            ("text/\u{1b}[31mplain", "plain", Kind::Text),
        ] {
            assert_eq!(MediaType::read(header).kind(body.as_bytes()), kind, "{header:?} {body:?}");
        }
    }

    #[test]
    fn the_charset_comes_from_the_mark_the_header_or_the_page() {
        for (header, body, text) in [
            ("text/plain", "grün".as_bytes(), "grün"),
            ("text/plain; charset=iso-8859-1", b"gr\xfcn", "grün"),
            ("text/plain; Charset=\"Shift_JIS\"", b"\x93\xfa\x96\x7b", "日本"),
            ("text/html", b"<meta charset=windows-1251><p>\xc4\xe0", "<meta charset=windows-1251><p>Да"),
            (
                "text/html",
                b"<meta http-equiv=x content='text/html; charset=latin1'>\xfc",
                "<meta http-equiv=x content='text/html; charset=latin1'>ü",
            ),
            ("text/html", b"<meta charset=utf-16le>abc", "<meta charset=utf-16le>abc"),
            ("text/plain; charset=latin1", b"\xef\xbb\xbfgr\xc3\xbcn", "grün"),
            ("text/plain", b"\xff\xfeh\0i\0", "hi"),
            ("text/plain; charset=nonsense", b"a\xffb", "a\u{fffd}b"),
        ] {
            assert_eq!(MediaType::read(header).decode(body), text, "{header}");
        }
    }
}
