//! The address of a chat or of one topic in it.

use std::fmt;
use std::str::FromStr;

use belay_protocol::SessionKey;

use super::NAME;

/// A chat or topic, written as `<chat>`, `<chat>:<topic>` or `<chat>:d<topic of a direct messages chat>`. The ephemeral
/// messages of a person in a group are a conversation of their own: `<chat>:e<person>` or `<chat>:e<person>:<topic>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Conversation {
    /// The chat's id; negative for groups.
    pub(super) chat: i64,
    pub(super) topic: Option<Topic>,
}

/// A topic of a chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Topic {
    /// One of a forum or of a private chat: its `message_thread_id`.
    Thread(i32),
    /// One of the direct messages chat of a channel: the conversation with one person (Bot API, DirectMessagesTopic).
    Direct(i64),
    /// The messages of a group that only this person and the bot see (Bot API, Message, `ephemeral_message_id`). Nothing
    /// that goes to this conversation is ever shown to the group.
    Ephemeral {
        /// The person.
        person: u64,
        /// The topic of the forum.
        thread: Option<i32>,
    },
}

impl Conversation {
    /// Whether it has the ephemeral messages of a person.
    pub(super) fn is_ephemeral(self) -> bool {
        matches!(self.topic, Some(Topic::Ephemeral { .. }))
    }

    /// The chat without the topic.
    pub(super) fn whole_chat(self) -> Self {
        Self { topic: None, ..self }
    }
}

impl fmt::Display for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.topic {
            None => write!(f, "{}", self.chat),
            Some(Topic::Thread(topic)) => write!(f, "{}:{topic}", self.chat),
            Some(Topic::Direct(topic)) => write!(f, "{}:d{topic}", self.chat),
            Some(Topic::Ephemeral { person, thread: None }) => write!(f, "{}:e{person}", self.chat),
            Some(Topic::Ephemeral { person, thread: Some(thread) }) => write!(f, "{}:e{person}:{thread}", self.chat),
        }
    }
}

/// The session of the messages of a conversation.
pub(super) fn session(conversation: Conversation) -> SessionKey {
    SessionKey::from(format!("{NAME}:{conversation}"))
}

/// The conversation of a session; `None`: the session is not one of this channel.
pub(super) fn of_session(session: &SessionKey) -> Option<Conversation> {
    let chat = session.as_str().strip_prefix(NAME).and_then(|rest| rest.strip_prefix(':'));
    chat.and_then(|chat| chat.parse().ok())
}

/// Whether the session is that of a group. One person alone reads ephemeral messages.
pub(super) fn is_group(session: &SessionKey) -> bool {
    of_session(session).is_some_and(|conversation| conversation.chat < 0 && !conversation.is_ephemeral())
}

/// A message of a conversation, as routes and stored facts name it: `<number>`, which is the `ephemeral_message_id` in a
/// conversation of ephemeral messages, or `<chat>/<number>` where the group has
/// another id now than its conversation. Such a group numbers its messages anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageRef {
    /// `None`: the chat of the conversation.
    chat: Option<i64>,
    /// Telegram's `message_id` or `ephemeral_message_id`.
    pub(super) id: i32,
}

impl MessageRef {
    /// The message with this number in this chat, seen from its conversation.
    pub(super) fn new(conversation: Conversation, chat: i64, id: i32) -> Self {
        Self { chat: (chat != conversation.chat).then_some(chat), id }
    }

    /// The chat that the message is in.
    pub(super) fn chat(self, conversation: Conversation) -> i64 {
        self.chat.unwrap_or(conversation.chat)
    }
}

impl fmt::Display for MessageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.chat {
            None => write!(f, "{}", self.id),
            Some(chat) => write!(f, "{chat}/{}", self.id),
        }
    }
}

impl FromStr for MessageRef {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (chat, id) = match text.split_once('/') {
            None => (None, text),
            Some((chat, id)) => (Some(chat.parse()?), id),
        };
        Ok(Self { chat, id: id.parse()? })
    }
}

impl FromStr for Conversation {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (chat, topic) = match text.split_once(':') {
            None => (text, None),
            Some((chat, topic)) => {
                let topic = if let Some(topic) = topic.strip_prefix('d') {
                    Topic::Direct(topic.parse()?)
                } else if let Some(person) = topic.strip_prefix('e') {
                    match person.split_once(':') {
                        None => Topic::Ephemeral { person: person.parse()?, thread: None },
                        Some((person, thread)) => {
                            Topic::Ephemeral { person: person.parse()?, thread: Some(thread.parse()?) }
                        }
                    }
                } else {
                    Topic::Thread(topic.parse()?)
                };
                (chat, Some(topic))
            }
        };
        Ok(Self { chat: chat.parse()?, topic })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_groups_are_told_from_those_of_persons() {
        for (session, group) in [
            ("telegram:42", false),
            ("telegram:-100123", true),
            ("telegram:-100123:7", true),
            ("telegram:-100123:e42", false),
            ("telegram:-100123:d7", true),
            ("-100123", false),
        ] {
            assert_eq!(is_group(&session.into()), group, "{session}");
        }
    }

    #[test]
    fn messages_round_trip_as_text() {
        let group = Conversation { chat: -100, topic: None };
        for (chat, text) in [(-100, "5"), (-1009, "-1009/5")] {
            let message = MessageRef::new(group, chat, 5);
            assert_eq!((message.to_string().as_str(), text.parse()), (text, Ok(message)));
            assert_eq!(message.chat(group), chat);
        }
        assert!("x".parse::<MessageRef>().is_err() && "1/".parse::<MessageRef>().is_err());
    }

    #[test]
    fn conversations_round_trip_as_text() {
        for text in ["42", "-1001234567890", "-1001234567890:7", "-1001234567890:d7", "-100:e42", "-100:e42:7"] {
            assert_eq!(text.parse::<Conversation>().map(|it| it.to_string()).as_deref(), Ok(text));
        }
        assert!(super::super::Telegram::is_conversation("42") && !super::super::Telegram::is_conversation("+42"));
        for text in ["", "x", "1:", "1:d", "1:2:3", "telegram:1"] {
            assert!(text.parse::<Conversation>().is_err(), "{text:?}");
        }
    }
}
