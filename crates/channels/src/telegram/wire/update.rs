//! Updates. Bot API: Update, CallbackQuery, ChatMemberUpdated.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::json;
use super::message::{Chat, Message, User};
use super::read::{Field, Read, objects};

/// An update.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::telegram) struct Update {
    pub(in crate::telegram) update_id: i64,
    pub(in crate::telegram) content: UpdateContent,
}

/// The kinds of updates that are read.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::telegram) enum UpdateContent {
    Message(Box<Message>),
    EditedMessage(Box<Message>),
    CallbackQuery(Box<CallbackQuery>),
    MyChatMember(Box<ChatMemberUpdated>),
    /// Every other kind.
    Other,
}

objects! {
    /// A tap on a button.
    CallbackQuery {
        id: String,
        from: User,
        /// The message that the button belongs to. Its date is 0 if Telegram no longer shows it.
        message: Option<Message>,
        data: Option<String>,
    }

    /// A change of the bot's own membership in a chat.
    ChatMemberUpdated {
        chat: Chat,
        date: Option<u64>,
        old_chat_member: Member,
        new_chat_member: Member,
    }

    /// A member of a chat.
    Member {
        status: String,
    }
}

impl Update {
    /// Reads an update; `None`: it has no number, or what it is about cannot be found in it.
    pub(in crate::telegram) fn parse(raw: &RawValue) -> Option<Self> {
        Self::read(&json::value(raw.get()))
    }
}

impl Read for Update {
    fn read(value: &Value) -> Option<Self> {
        let update_id = field(value, "update_id")?;
        let content = UpdateContent::read(value)?;
        Some(Self { update_id, content })
    }
}

/// A field of a value, if it is there and can be read.
fn field<T: Read>(value: &Value, name: &str) -> Option<T> {
    Field::field(value.get(name))
}

impl Read for UpdateContent {
    fn read(value: &Value) -> Option<Self> {
        let content = if let Some(message) = field(value, "message") {
            Self::Message(message)
        } else if let Some(message) = field(value, "edited_message") {
            Self::EditedMessage(message)
        } else if let Some(query) = field(value, "callback_query") {
            Self::CallbackQuery(query)
        } else if let Some(change) = field(value, "my_chat_member") {
            Self::MyChatMember(change)
        } else {
            Self::Other
        };
        let is_usable = match &content {
            Self::Message(message) | Self::EditedMessage(message) => message.chat.id != 0,
            Self::CallbackQuery(query) => !query.id.is_empty() && query.from.id != 0,
            Self::MyChatMember(change) => change.chat.id != 0,
            Self::Other => true,
        };
        is_usable.then_some(content)
    }
}

/// The number of an update, even if the update cannot be read otherwise.
pub(in crate::telegram) fn update_id(raw: &RawValue) -> Option<i64> {
    #[derive(Deserialize)]
    struct Numbered<'a> {
        #[serde(borrow)]
        update_id: &'a RawValue,
    }
    let numbered: Numbered<'_> = serde_json::from_str(raw.get()).ok()?;
    i64::read(&json::value(numbered.update_id.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tap_needs_its_id_and_its_person_alone() {
        let read = |text: &str| {
            let raw = serde_json::from_str::<Box<RawValue>>(text).expect("JSON");
            Update::parse(&raw).map(|update| matches!(update.content, UpdateContent::CallbackQuery(_)))
        };
        let tap = |more: &str| {
            let from = r#""from": {"id": 42, "is_bot": false, "first_name": "A"}"#;
            format!(r#"{{"update_id": 1, "callback_query": {{"id": "q", "data": "x", {from}{more}}}}}"#)
        };
        assert_eq!(read(&tap("")), Some(true), "the Bot API promises a chat_instance, but nothing here needs it");
        assert_eq!(read(&tap(r#", "chat_instance": "c""#)), Some(true));
        assert_eq!(read(r#"{"update_id": 1, "callback_query": {"data": "x"}}"#), None, "what matters must be there");
        assert_eq!(read(r#"{"update_id": 1, "callback_query": 5}"#), None);
        assert_eq!(read(r#"{"update_id": 1, "hologram": 5}"#), Some(false));
        assert_eq!(read(r#"{"callback_query": 5}"#), None);
    }
}
