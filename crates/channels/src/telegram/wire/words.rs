//! The text of a message, whichever field it is in. Bot API: Message, `text`, `caption`, `rich_message`.

use serde_json::Value;

use super::message::Entity;
use super::read::{Field, Read};

/// The text of a message, or the caption of its media.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::telegram) struct Words {
    pub(in crate::telegram) text: String,
    pub(in crate::telegram) entities: Vec<Entity>,
    /// Whether the message has a text that cannot be read.
    pub(in crate::telegram) is_unreadable: bool,
}

impl Read for Words {
    /// Reads the words of a message.
    fn read(message: &Value) -> Option<Self> {
        let there = |name: &str| message.get(name).filter(|value| !value.is_null());
        let (text, entities) = match (there("text"), there("caption")) {
            (Some(text), _) => (text, "entities"),
            (None, Some(caption)) => (caption, "caption_entities"),
            (None, None) => return Some(Self::default()),
        };
        match text {
            Value::String(text) => {
                let entities = Field::field(message.get(entities));
                Some(Self { text: text.clone(), entities, is_unreadable: false })
            }
            other => Some(Self { text: plain(other), is_unreadable: plain(other).is_empty(), ..Self::default() }),
        }
    }
}

/// The texts inside of a value of another type, one after another.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Array(parts) => parts.iter().map(plain).collect(),
        Value::Object(fields) => fields.get("text").map(plain).unwrap_or_default(),
        Value::Null | Value::Bool(_) => String::new(),
    }
}
