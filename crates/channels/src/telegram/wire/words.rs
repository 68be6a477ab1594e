//! The text of a message, whichever field it is in. Bot API: Message, `text`, `caption`, `rich_message`.

use serde_json::Value;

use super::message::Entity;
use super::read::{Field, Read};
use super::rich;

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
            (None, None) => return Some(there("rich_message").map(rich::words).unwrap_or_default()),
        };
        if let Value::String(text) = text {
            let entities = Field::field(message.get(entities));
            return Some(Self { text: text.clone(), entities, is_unreadable: false });
        }
        let text = rich::plain(text);
        Some(Self { is_unreadable: text.is_empty(), text, ..Self::default() })
    }
}
