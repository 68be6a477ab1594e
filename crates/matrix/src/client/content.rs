//! The content of the events that are sent. Pure.

use belay_protocol::{OutboundFile, OutboxKey, Question};
use serde_json::{Map, Value, json};

use super::html::html;

/// The field of Belay's own messages: their delivery and piece, and the approval request that they show.
pub(crate) const MARK: &str = "dev.belay.message";

/// Longest piece of an answer, in bytes. 10,000: escaped and twice in an edit, with its HTML, it fits an event of 65,536 bytes.
pub(crate) const PIECE_MAX_BYTES: usize = 10_000;

/// Longest HTML of a piece, in bytes of JSON. Above it, the piece is sent without.
const HTML_MAX_BYTES: usize = 20_000;

/// A message that is sent.
pub(crate) struct Content<'a> {
    /// The text, in Markdown: one piece of an answer.
    pub(crate) text: &'a str,
    /// The message that it answers.
    pub(crate) reply_to: Option<&'a str>,
    /// The field [`MARK`].
    pub(crate) mark: Value,
}

/// The mark of a piece.
pub(crate) fn mark(key: OutboxKey, number: u32, question: Option<&Question>) -> Value {
    match question {
        None => json!({ "key": key.piece(number) }),
        Some(question) => json!({ "key": key.piece(number), "approval": question.approval.to_string() }),
    }
}

impl Content<'_> {
    /// The content of a new message. It mentions nobody, whatever the text says.
    pub(crate) fn message(&self) -> Value {
        let mut content = self.body();
        if let Some(id) = self.reply_to {
            content.insert("m.relates_to".into(), json!({ "m.in_reply_to": { "event_id": id } }));
        }
        content.into()
    }

    /// The content of an edit that replaces the text of a message.
    pub(crate) fn edit(&self, message: &str) -> Value {
        let new = self.body();
        let mut content = Map::new();
        content.insert("msgtype".into(), "m.text".into());
        content.insert("body".into(), format!("* {}", self.text).into());
        content.insert("m.mentions".into(), json!({}));
        content.insert(MARK.into(), self.mark.clone());
        content.insert("m.new_content".into(), new.into());
        content.insert("m.relates_to".into(), json!({ "rel_type": "m.replace", "event_id": message }));
        content.into()
    }

    /// The content of a message with a file, whose caption the text is.
    pub(crate) fn file(&self, file: &OutboundFile, address: &str) -> Value {
        let kind = match file.media_type.split('/').next() {
            Some("image") => "m.image",
            Some("audio") => "m.audio",
            Some("video") => "m.video",
            _ => "m.file",
        };
        let Value::Object(mut content) = self.message() else { return Value::Null };
        content.insert("msgtype".into(), kind.into());
        content.insert("filename".into(), file.name.as_str().into());
        content.insert("url".into(), address.into());
        content.insert("info".into(), json!({ "mimetype": file.media_type, "size": file.bytes }));
        if self.text.is_empty() {
            content.insert("body".into(), file.name.as_str().into());
        }
        content.into()
    }

    fn body(&self) -> Map<String, Value> {
        let mut content = Map::new();
        content.insert("msgtype".into(), "m.text".into());
        content.insert("body".into(), self.text.into());
        content.insert("m.mentions".into(), json!({}));
        content.insert(MARK.into(), self.mark.clone());
        let html = html(self.text).map(Value::from).filter(|html| html.to_string().len() <= HTML_MAX_BYTES);
        if let Some(html) = html {
            content.insert("format".into(), "org.matrix.custom.html".into());
            content.insert("formatted_body".into(), html);
        }
        content
    }
}

/// The content of a reaction to a message.
pub(crate) fn reaction(message: &str, key: &str) -> Value {
    json!({ "m.relates_to": { "rel_type": "m.annotation", "event_id": message, "key": key } })
}

/// Splits an answer into messages, in order; an empty answer has none. A code block that is cut is closed, and opened again
/// in the next piece. The same text always gives the same pieces.
pub(crate) fn pieces(text: &str) -> Vec<String> {
    let text: String = text.trim().chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
    let mut pieces = Vec::new();
    let (mut rest, mut fence) = (text.as_str(), None::<String>);
    while !rest.is_empty() {
        let head = fence.as_ref().map(|fence| format!("{fence}\n")).unwrap_or_default();
        let room = PIECE_MAX_BYTES - head.len() - 8; // the end of a block that is cut
        let cut = if rest.len() <= room { rest.len() } else { border(rest, room) };
        let (piece, more) = rest.split_at(cut);
        fence = open_fence(piece, fence);
        let end = if fence.is_some() && !more.is_empty() { "\n```" } else { "" };
        pieces.push(format!("{head}{}{end}", piece.trim_end()));
        rest = if fence.is_some() { more.trim_start_matches('\n') } else { more.trim_start() };
    }
    pieces
}

/// Where to cut a text that is longer than `room`: after a paragraph, a line, a word, or a character.
fn border(text: &str, room: usize) -> usize {
    let end = text.floor_char_boundary(room);
    let fits = &text[..end];
    let behind = |found: Option<usize>, length| found.map(|at| at + length).filter(|at| *at > room / 2);
    let paragraph = behind(fits.rfind("\n\n"), 2);
    paragraph.or_else(|| behind(fits.rfind('\n'), 1)).or_else(|| behind(fits.rfind(' '), 1)).unwrap_or(end)
}

/// The line that opened the code block at the end of a piece.
fn open_fence(piece: &str, mut fence: Option<String>) -> Option<String> {
    for line in piece.lines().map(str::trim).filter(|line| line.starts_with("```")) {
        fence = match fence {
            None => Some(line.chars().take(40).collect()),
            Some(_) => None,
        };
    }
    fence
}

#[cfg(test)]
mod tests;
