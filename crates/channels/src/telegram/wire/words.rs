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
    /// Reads the words of a message, from the first of its fields that has some.
    fn read(message: &Value) -> Option<Self> {
        let there = |name: &str| message.get(name).filter(|value| !value.is_null());
        let mut is_unreadable = false;
        for (name, entities) in [("text", "entities"), ("caption", "caption_entities")] {
            let (text, entities) = match there(name) {
                None => continue,
                Some(Value::String(text)) => (text.clone(), Field::field(message.get(entities))),
                Some(other) => (rich::plain(other), Vec::new()),
            };
            if !text.is_empty() {
                return Some(Self { text, entities, is_unreadable: false });
            }
            is_unreadable |= !there(name).is_some_and(Value::is_string);
        }
        let rich = there("rich_message").map(rich::words);
        rich.or(Some(Self { is_unreadable, ..Self::default() }))
    }
}
