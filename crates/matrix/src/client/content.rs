//! The content of the events that are sent. Pure.

use belay_channel_kit::html::html;
use belay_channel_kit::split::{Unit, markdown};
use belay_protocol::{OutboundFile, OutboxKey, Question};
use serde_json::{Map, Value, json};

/// The field of Belay's own messages: their delivery and piece, and the approval request that they show.
pub(crate) const MARK: &str = "dev.belay.message";

/// Longest piece of an answer, in bytes. 10,000: escaped and twice in an edit, with its HTML, it fits an event of
/// 65,536 bytes.
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

/// Splits an answer into messages, in order; an empty answer has none. The same text always gives the same pieces.
pub(crate) fn pieces(text: &str) -> Vec<String> {
    // A control character needs six bytes in an event.
    let text: String = text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
    markdown::pieces(&text, Unit::Bytes, PIECE_MAX_BYTES)
}

#[cfg(test)]
mod tests;
