//! Messages, and who writes them. Bot API: Message, User, Chat, MessageEntity, MessageOrigin, ExternalReplyInfo.

use super::content::{Content, Present};
use super::read::objects;
use super::unknown::UnknownKind;
use super::words::Words;

objects! {
    /// A message.
    Message {
        /// 0: there is none, or it cannot be read.
        message_id: i32,
        message_thread_id: Option<i32>,
        is_topic_message: bool,
        /// The topic in the direct messages chat of a channel.
        direct_messages_topic: Option<DirectTopic>,
        chat: Chat,
        from: Option<User>,
        /// The group or channel in whose name it is written.
        sender_chat: Option<Chat>,
        /// The bot that wrote it for a person's account.
        sender_business_bot: Option<User>,
        via_bot: Option<User>,
        /// The one person who sees it, beside the bot.
        receiver_user: Option<User>,
        ephemeral_message_id: Option<i32>,
        /// In seconds since 1970.
        date: Option<u64>,
        edit_date: Option<u64>,
        /// Whether its sender has edited it.
        edited = "edit_date": Option<Present>,
        forward_origin: Option<Origin>,
        is_automatic_forward: bool,
        reply_to_message: Option<Box<Message>>,
        external_reply: Option<Box<ExternalReply>>,
        quote: Option<Quote>,
        reply_to_checklist_task_id: Option<i64>,
        reply_to_poll_option_id: Option<String>,
        media_group_id: Option<String>,
        migrate_to_chat_id: Option<i64>,
        migrate_from_chat_id: Option<i64>,
        forum_topic_created: Option<Present>,
        @flat words: Words,
        @flat unknown: UnknownKind,
        @flat content: Content,
    }

    /// A person or a bot.
    User {
        /// 0: it cannot be read.
        id: u64,
        is_bot: bool,
        first_name: String,
        last_name: Option<String>,
        username: Option<String>,
    }

    /// A private chat, a group or a channel.
    Chat {
        /// 0: it cannot be read.
        id: i64,
        kind = "type": Option<String>,
        title: Option<String>,
        username: Option<String>,
    }

    /// A part of a text with a meaning or a style.
    Entity {
        kind = "type": String,
        /// In UTF-16 units.
        offset: Option<usize>,
        length: Option<usize>,
        url: Option<String>,
        user: Option<User>,
        language: Option<String>,
        unix_time: Option<i64>,
    }

    /// Where a forwarded message comes from. Its kind is not read: the field that is there says who it is.
    Origin {
        sender_user: Option<User>,
        sender_user_name: Option<String>,
        sender_chat: Option<Chat>,
        chat: Option<Chat>,
    }

    /// A message of another chat that is replied to.
    ExternalReply {
        origin: Option<Origin>,
        @flat content: Content,
    }

    /// The part of the replied-to message that the sender has chosen.
    Quote {
        text: String,
    }

    /// A topic of a direct messages chat.
    DirectTopic {
        topic_id: Option<i64>,
    }
}

impl Chat {
    /// Whether only one person and the bot are in it. Without a known kind, its id says so (Bot API, Chat, `id`: the ids of
    /// groups and channels are negative).
    pub(in crate::telegram) fn is_private(&self) -> bool {
        match self.kind.as_deref() {
            Some("private") => true,
            Some("group" | "supergroup" | "channel") => false,
            _ => self.id > 0,
        }
    }

    /// Whether it is a channel.
    pub(in crate::telegram) fn is_channel(&self) -> bool {
        self.kind.as_deref() == Some("channel")
    }
}
