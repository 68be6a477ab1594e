//! The newest group messages that were not for the bot. The model reads them with the next message that is.
//!
//! They are kept in memory alone, within a bound, and only in groups whose settings ask for them. A restart forgets them.
//! The lock is held for a few instructions and never across an await.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use belay_protocol::EarlierMessage;

use super::conversation::Conversation;

/// Number of messages that are kept of all groups together. 1024: twenty groups with the largest setting.
const KEPT_MAX: usize = 1024;

/// The messages, in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct UnaddressedMessages(Mutex<VecDeque<Kept>>);

#[derive(Debug)]
struct Kept {
    conversation: Conversation,
    message_id: i32,
    /// The message for the bot that has brought it to the model. An edit of that message brings it again.
    used_by: Option<i32>,
    message: EarlierMessage,
}

impl UnaddressedMessages {
    /// Keeps a message, and at most `limit` of its conversation. An edit replaces the message, if it is kept.
    pub(super) fn note(
        &self,
        conversation: Conversation,
        message_id: i32,
        message: EarlierMessage,
        edit: bool,
        limit: usize,
    ) {
        let mut kept = self.kept();
        let known = kept.iter_mut().find(|kept| (kept.conversation, kept.message_id) == (conversation, message_id));
        match known {
            Some(known) => known.message = message,
            None if edit => {}
            None => kept.push_back(Kept { conversation, message_id, used_by: None, message }),
        }
        let of_conversation = kept.iter().filter(|kept| kept.conversation == conversation).count();
        let mut surplus = of_conversation.saturating_sub(limit);
        kept.retain(|kept| {
            let goes = surplus > 0 && kept.conversation == conversation;
            surplus -= usize::from(goes);
            !goes
        });
        if kept.len() > KEPT_MAX {
            kept.pop_front();
        }
    }

    /// The newest messages of a conversation before this one, at most `limit`, without those that the model has read
    /// already.
    pub(super) fn before(&self, conversation: Conversation, message_id: i32, limit: usize) -> Vec<EarlierMessage> {
        let kept = self.kept();
        let is_new = |kept: &&Kept| {
            kept.conversation == conversation
                && kept.message_id < message_id
                && kept.used_by.is_none_or(|by| by == message_id)
        };
        let mut newest: Vec<_> =
            kept.iter().filter(is_new).rev().take(limit).map(|kept| kept.message.clone()).collect();
        newest.reverse();
        newest
    }

    /// Marks the messages before this one as read by the model.
    pub(super) fn used(&self, conversation: Conversation, message_id: i32) {
        let mut kept = self.kept();
        let before = kept.iter_mut().filter(|kept| kept.conversation == conversation && kept.message_id < message_id);
        before.for_each(|kept| _ = kept.used_by.get_or_insert(message_id));
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::Person;

    use super::*;
    use crate::telegram::conversation::Topic;

    const HERE: Conversation = Conversation { chat: -1, topic: None };
    const TOPIC: Conversation = Conversation { chat: -1, topic: Some(Topic::Thread(7)) };

    fn message(text: &str) -> EarlierMessage {
        EarlierMessage { sender: Person::default(), at: String::new(), text: text.into() }
    }

    fn texts(messages: &UnaddressedMessages, conversation: Conversation, before: i32, limit: usize) -> String {
        let texts = messages.before(conversation, before, limit).into_iter().map(|message| message.text);
        texts.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_newest_messages_of_a_conversation_are_read_once() {
        let messages = UnaddressedMessages::default();
        for id in 1..=5 {
            messages.note(HERE, id, message(&id.to_string()), false, 3);
        }
        messages.note(TOPIC, 6, message("6"), false, 3);
        assert_eq!(texts(&messages, HERE, 9, 3), "3 4 5");
        assert_eq!(texts(&messages, HERE, 9, 2), "4 5");
        assert_eq!(texts(&messages, HERE, 5, 3), "3 4", "later ones are no context of an earlier message");
        assert_eq!(texts(&messages, TOPIC, 9, 3), "6");
        assert_eq!(texts(&messages, HERE, 9, 0), "");
        messages.used(HERE, 9);
        assert_eq!(texts(&messages, HERE, 9, 3), "3 4 5", "a redelivery and an edit bring them again");
        messages.note(HERE, 10, message("10"), false, 3);
        assert_eq!(texts(&messages, HERE, 11, 3), "10");
        assert_eq!(texts(&messages, TOPIC, 11, 3), "6");
    }

    #[test]
    fn an_edit_replaces_a_kept_message_and_adds_none() {
        let messages = UnaddressedMessages::default();
        messages.note(HERE, 1, message("a"), false, 3);
        messages.note(HERE, 1, message("b"), true, 3);
        messages.note(HERE, 2, message("c"), true, 3);
        assert_eq!(texts(&messages, HERE, 9, 3), "b");
    }

    #[test]
    fn all_groups_together_are_bounded() {
        let messages = UnaddressedMessages::default();
        for chat in 0..2_000 {
            let conversation = Conversation { chat: -chat, topic: None };
            messages.note(conversation, 1, message("x"), false, 50);
        }
        assert_eq!(messages.kept().len(), KEPT_MAX);
    }
}
