//! Decides which updates are messages for the bot, and reads their text. Pure.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::NAME;
use super::attached::{self, RemoteFile};
use super::callback_buttons::{self, ButtonPress};
use super::conversation::{Conversation, MessageRef, Topic, session};
use super::facts;
use super::groups::{Addressed, Relevance};
use super::marked::{self, Mark};
use super::people::AllowLists;
use super::unaddressed::UnaddressedMessages;
use super::wire::{CallbackQuery, ChatMemberUpdated, Entity, Message, Update, UpdateContent};
use crate::commands::{acts_at_once, ends_the_daemon};
use belay_protocol::{
    Body, ChannelId, ChannelPeople, Control, IdempotencyKey, Inbound, NO_TEXT, Principal, Provenance, ReplyRoute,
    Stranger, Unread,
};

/// Answer to a tap by a person who may not talk to the bot.
const NOT_YOURS: &str = "This question is not yours to answer.";

/// Answer to a tap on a button whose data or message is no longer valid.
const OUT_OF_USE: &str = "This button is out of use. Write /approve or /deny instead.";

/// Answer to a tap in a group that the bot no longer serves.
const NOT_HERE: &str = "Belay is not served in this group any more.";

/// The reason why a file is not read that comes with `/stop` or the like.
const COMMANDS_TAKE_NONE: &str = "a command takes no files";

/// Number of group messages that are remembered. 256: only the newest messages, which are few, can still wait for their
/// turn.
const ACCEPTED_MAX: usize = 256;

/// The newest group messages that were for the bot. An edit of one is for the bot too, even if it no longer addresses
/// the bot, and so are later parts of its album. Not stored: a restart forgets them. The lock is held for a few
/// instructions and never across an await.
#[derive(Debug, Default)]
pub(super) struct AcceptedGroupMessages(Mutex<VecDeque<AcceptedMessage>>);

/// A group message that was for the bot.
#[derive(Debug, PartialEq, Eq)]
struct AcceptedMessage {
    chat: i64,
    id: i32,
    /// Its sender and the album that it belongs to.
    album: Option<(u64, String)>,
}

impl AcceptedGroupMessages {
    fn note(&self, message: &Message) {
        let new = AcceptedMessage { chat: message.chat.id, id: message.message_id, album: album(message) };
        let mut accepted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if accepted.contains(&new) {
            return;
        }
        if accepted.len() >= ACCEPTED_MAX {
            accepted.pop_front();
        }
        accepted.push_back(new);
    }

    /// Whether an edit, or a part of an album, is for the bot because of an earlier message.
    fn has(&self, message: &Message, is_edit: bool) -> bool {
        let album = if is_edit { None } else { album(message) };
        if !is_edit && album.is_none() {
            return false;
        }
        let accepted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        accepted.iter().filter(|known| known.chat == message.chat.id).any(|known| match &album {
            None => known.id == message.message_id,
            album => known.album == *album,
        })
    }
}

/// The bot's identity, and the people who may talk to it.
pub(super) struct Rules {
    /// The token's numeric prefix: the bot's user id.
    pub(super) bot_id: u64,
    /// Without `@`. Empty until Telegram has returned it.
    pub(super) username: OnceLock<String>,
    pub(super) people: AllowLists,
    /// Greatest age of a message at the start of this daemon, in seconds; 0: any age.
    pub(super) max_age_s: u64,
    /// Start of this daemon, in seconds since 1970. An older `/quit` was meant for an earlier daemon.
    pub(super) since: u64,
    pub(super) accepted: AcceptedGroupMessages,
    pub(super) unaddressed: UnaddressedMessages,
    /// Whether the files of messages are fetched.
    pub(super) takes_files: bool,
}

/// How an update is to be handled.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// A message for the bot.
    Message(Box<Inbound>),
    /// A message for the bot with files that are to be fetched first.
    WithFiles(Box<Inbound>, Vec<RemoteFile>),
    /// An answer to an approval request, by a button.
    Tapped(Box<Inbound>, ButtonPress),
    /// A tap that answers no request.
    InvalidTap {
        /// The tap to answer.
        tap: ButtonPress,
        /// The text of the answer.
        words: &'static str,
        /// The id of the person, if that person may not talk to the bot.
        stranger: Option<u64>,
    },
    /// A message for the bot that has neither a text nor a file that Belay reads.
    NoText {
        /// Its conversation.
        conversation: Conversation,
        /// The message.
        message: Option<MessageRef>,
        /// Its attachments.
        not_read: Vec<Unread>,
        /// The album that it belongs to.
        album: Option<String>,
    },
    /// A message for the bot in a group, written in the name of a group or channel: its conversation and itself.
    Anonymous(Conversation, Option<MessageRef>),
    /// A message of a person who may talk to the bot, of which neither the author nor a text can be read.
    Unreadable(Conversation),
    /// A message for the bot that is older than `max_age_s` allows.
    TooOld(Conversation),
    /// From a person who may not talk to the bot.
    Stranger(u64),
    /// In private from a person who may not talk to the bot, and who may get a pairing code.
    Pairable(Box<Stranger>),
    /// The bot was added to a group that it serves: the group and the greeting.
    Added(Conversation, String),
    /// From a group that the bot does not serve.
    UnlistedGroup(i64),
    /// A group has become a supergroup.
    Moved {
        /// Its old id.
        from: i64,
        /// Its new id.
        to: i64,
    },
    /// It names somebody; whether it is the bot is unknown until the bot's user name is known.
    Undecided,
    /// Not for the bot, for this reason.
    NotForUs(&'static str),
}

impl Rules {
    /// Decides how to handle an update.
    pub(super) fn judge(&self, update: Update) -> Verdict {
        let (message, is_edit) = match update.content {
            UpdateContent::Message(message) => (message, false),
            // Without the date, the sender did not edit it: for example, Telegram has only added a link preview.
            UpdateContent::EditedMessage(message) if message.edited.is_some() => (message, true),
            UpdateContent::CallbackQuery(query) => return self.judge_tap(&query),
            UpdateContent::MyChatMember(change) => return self.judge_membership(&change),
            _ => return Verdict::NotForUs("no new message"),
        };
        if let Some(verdict) = moved(&message) {
            return verdict;
        }
        let Some(sender) = person(&message) else {
            return self.judge_authorless(&message, is_edit);
        };
        if message.chat.is_channel() {
            return Verdict::NotForUs("a channel post");
        }
        let (conversation, is_private) = (self.conversation(&message, sender), message.chat.is_private());
        let is_ephemeral = conversation.is_ephemeral();
        let reference = reference(&message, conversation);
        if !is_private {
            let addressed = match is_ephemeral || self.accepted.has(&message, is_edit) {
                // Nobody else gets it, or the original message, or another part of its album, was for the bot.
                true => Addressed::Bot,
                false => self.addressed(&message),
            };
            match self.people.relevance(conversation, addressed) {
                Relevance::Yes => {}
                Relevance::NotAddressed => {
                    self.note_unaddressed(&message, conversation, is_edit);
                    return Verdict::NotForUs("does not address the bot");
                }
                Relevance::No(why) => return Verdict::NotForUs(why),
                Relevance::Undecided => return Verdict::Undecided,
                Relevance::Unlisted => return Verdict::UnlistedGroup(message.chat.id),
            }
        }
        let Some(role) = self.people.role(sender, is_private) else {
            if is_private && !is_edit && self.people.has_pairing() {
                return Verdict::Pairable(Box::new(facts::stranger(&message, sender)));
            }
            return Verdict::Stranger(sender);
        };
        if self.is_too_old(message.edit_date.filter(|_| is_edit).or(message.date)) {
            return Verdict::TooOld(conversation);
        }
        let mut provenance = facts::provenance(&message, self.bot_id, is_private || is_ephemeral, reference);
        let mut text = self.text(&message, is_private, provenance.is_forwarded());
        let file = self.file(&message, &text, &mut provenance);
        if text.is_empty() && (file.is_some() || !provenance.shared.is_empty()) && !is_edit {
            text = NO_TEXT.to_owned();
        }
        if text.is_empty() && message.words.is_unreadable && !is_edit {
            return Verdict::Unreadable(conversation);
        }
        if text.is_empty() && provenance.not_read.is_empty() && is_private {
            provenance.not_read = facts::unknown(&message); // not in groups: it may be an event of the group
        }
        if text.is_empty() {
            // The removal of a caption changes nothing in a waiting message.
            if provenance.not_read.is_empty() || is_edit {
                return Verdict::NotForUs("says nothing");
            }
            let (not_read, album) = (provenance.not_read, message.media_group_id);
            return Verdict::NoText { conversation, message: reference, not_read, album };
        }
        let files =
            file.into_iter().chain(self.quoted_file(&message, &text, provenance.is_forwarded())).collect::<Vec<_>>();
        // Otherwise a `/quit` that could not be confirmed before the end would end every daemon started after it.
        if ends_the_daemon(&text) && !provenance.is_forwarded() && message.date.unwrap_or_default() < self.since {
            return Verdict::NotForUs("an end of the daemon from before its start");
        }
        if !is_private && !is_ephemeral {
            let limit = self.people.context_messages(conversation);
            provenance.earlier = self.unaddressed.before(conversation, message.message_id, limit);
            if !provenance.earlier.is_empty() {
                // At once: the next message of the same batch must not bring them again.
                self.unaddressed.used(conversation, message.message_id);
            }
        }
        if !is_private && !is_ephemeral && !is_edit {
            self.accepted.note(&message);
        }
        let channel = ChannelId::new(NAME);
        let inbound = Box::new(Inbound {
            key: Some(IdempotencyKey {
                channel: channel.clone(),
                account: self.bot_id.to_string().into(),
                message_id: format!("update:{}", update.update_id).into(),
            }),
            reply_to: Some(ReplyRoute {
                channel: channel.clone(),
                conversation: conversation.to_string().into(),
                reply_to: reference.filter(|_| !is_private).map(|reference| Arc::from(reference.to_string())),
            }),
            relayed: facts::bot_author(&message).is_some(),
            provenance: Some(Arc::new(provenance)),
            ..Inbound::new(
                channel,
                session(conversation),
                Principal { id: sender.to_string().into(), role },
                if is_edit { Body::Edit(text) } else { Body::Text(text) },
            )
        });
        match files.is_empty() || is_edit {
            true => Verdict::Message(inbound), // an edit changes the text alone: the message keeps its files
            false => Verdict::WithFiles(inbound, files),
        }
    }

    /// Decides how to handle a message that no known person has written.
    fn judge_authorless(&self, message: &Message, is_edit: bool) -> Verdict {
        if is_ephemeral(message) {
            return Verdict::NotForUs("an ephemeral message that nobody has sent");
        }
        let is_new = !is_edit && !message.is_automatic_forward && !self.is_too_old(message.date);
        if is_new && message.sender_chat.is_some() && !message.chat.is_private() && !message.chat.is_channel() {
            let conversation = self.conversation(message, 0);
            match self.people.relevance(conversation, self.addressed(message)) {
                Relevance::Yes => return Verdict::Anonymous(conversation, reference(message, conversation)),
                Relevance::Undecided => return Verdict::Undecided,
                Relevance::NotAddressed | Relevance::No(_) | Relevance::Unlisted => {}
            }
        }
        let is_a_persons = message.chat.is_private()
            && is_new
            && message.sender_chat.is_none()
            && message.from.as_ref().is_none_or(|sender| sender.id == 0);
        // A private chat has the id of its person (Bot API, Chat, `id`).
        let person = u64::try_from(message.chat.id).ok().filter(|_| is_a_persons);
        match person.and_then(|id| self.people.role(id, true)) {
            Some(_) => Verdict::Unreadable(self.conversation(message, 0)),
            None => Verdict::NotForUs("not from a person"),
        }
    }

    /// The file of the message that a message replies to, if it is to be fetched. A command needs none.
    fn quoted_file(&self, message: &Message, text: &str, is_forwarded: bool) -> Option<RemoteFile> {
        let is_wanted = self.takes_files && (is_forwarded || !acts_at_once(text));
        facts::quoted_file(message).filter(|_| is_wanted)
    }

    /// The file of a message that is to be fetched. Otherwise the attachments are named in the provenance.
    fn file(&self, message: &Message, text: &str, provenance: &mut Provenance) -> Option<RemoteFile> {
        let not_read = match attached::file(&message.content).filter(|_| self.takes_files) {
            Some(file) if acts_at_once(text) && !provenance.is_forwarded() => {
                vec![file.unread(COMMANDS_TAKE_NONE.to_owned())]
            }
            Some(file) => return Some(file),
            None => attached::not_read(&message.content, message.media_group_id.is_some()),
        };
        if !not_read.is_empty() {
            *provenance = Provenance { not_read, ..std::mem::take(provenance) }.cleaned();
        }
        None
    }

    /// Keeps a message that is not for the bot, where the settings ask for that.
    fn note_unaddressed(&self, message: &Message, conversation: Conversation, is_edit: bool) {
        let limit = self.people.context_messages(conversation);
        if limit > 0
            && !self.is_too_old(message.date)
            && let Some(earlier) = facts::earlier(message)
        {
            self.unaddressed.note(conversation, message.message_id, earlier, is_edit, limit);
        }
    }

    /// Whether a message of that date is too old to be answered. One without a date is not.
    fn is_too_old(&self, date: Option<u64>) -> bool {
        self.max_age_s > 0 && date.is_some_and(|date| date.saturating_add(self.max_age_s) < self.since)
    }

    /// Decides how to handle a change of the bot's own membership in a chat.
    fn judge_membership(&self, change: &ChatMemberUpdated) -> Verdict {
        let (chat, is_group) = (change.chat.id, !change.chat.is_private());
        let was_added = !is_member(&change.old_chat_member.status) && is_member(&change.new_chat_member.status);
        if !is_group || !was_added || self.is_too_old(change.date) {
            return Verdict::NotForUs("no addition to a group");
        }
        let group = Conversation { chat, topic: None };
        if self.people.with_first_id(group) != group {
            return Verdict::NotForUs("the new id of a group that was greeted before");
        }
        match self.people.greeting().filter(|_| self.people.serves_group(chat)) {
            Some(greeting) => Verdict::Added(group, greeting),
            None if self.people.serves_group(chat) => Verdict::NotForUs("no greeting"),
            None => Verdict::UnlistedGroup(chat),
        }
    }

    /// Decides how to handle a tap on a button. The agent checks whether this person may answer the request.
    fn judge_tap(&self, query: &CallbackQuery) -> Verdict {
        let tap = ButtonPress::of(query);
        let sender = query.from.id;
        let message = callback_buttons::message_of(query);
        let is_private = message.is_none_or(|message| message.chat.is_private());
        let Some(role) = self.people.role(sender, is_private) else {
            return Verdict::InvalidTap { tap, words: NOT_YOURS, stranger: Some(sender) };
        };
        let answer = query.data.as_deref().and_then(callback_buttons::parse);
        let (Some((approval, decision)), Some(message)) = (answer, message) else {
            return Verdict::InvalidTap { tap, words: OUT_OF_USE, stranger: None };
        };
        if !is_private && !self.people.serves_group(message.chat.id) {
            return Verdict::InvalidTap { tap, words: NOT_HERE, stranger: None };
        }
        // No idempotency key: the request accepts one answer. No reply route: the tap itself is answered.
        let inbound = Inbound::new(
            ChannelId::new(NAME),
            session(self.conversation(message, sender)),
            Principal { id: sender.to_string().into(), role },
            Body::Control(Control::Decide { approval, decision }),
        );
        Verdict::Tapped(Box::new(inbound), tap)
    }

    /// The conversation that a message is in. `person`: who has written it, or has tapped its button.
    fn conversation(&self, message: &Message, person: u64) -> Conversation {
        let direct = message.direct_messages_topic.as_ref().and_then(|topic| topic.topic_id).map(Topic::Direct);
        let thread = message.message_thread_id.filter(|_| message.is_topic_message).map(Topic::Thread);
        let topic = match is_ephemeral(message) && !message.chat.is_private() {
            true => {
                let thread = message.message_thread_id.filter(|_| message.is_topic_message);
                Some(Topic::Ephemeral { person, thread })
            }
            false => direct.or(thread),
        };
        self.people.with_first_id(Conversation { chat: message.chat.id, topic })
    }

    /// Whether a group message addresses the bot: by a mention, a reply to it, or a command that names it.
    fn addressed(&self, message: &Message) -> Addressed {
        let mut addressed = Addressed::Nobody;
        if let Some(replied) = &message.reply_to_message
            // Every message of a topic "replies" to the topic's creation.
            && replied.forum_topic_created.is_none()
            && replied.from.as_ref().is_some_and(|author| author.id == self.bot_id)
        {
            addressed = Addressed::Bot;
        }
        for entity in &message.words.entities {
            match self.names(entity, &message.words.text) {
                Names::Bot => return Addressed::Bot,
                Names::Unknown if addressed == Addressed::Nobody => addressed = Addressed::Unknown,
                // `/stop@other_bot` is for the other bot, even in a reply to this one.
                Names::Other if entity.kind == "bot_command" => return Addressed::OtherBot,
                _ => {}
            }
        }
        addressed
    }

    fn names(&self, entity: &Entity, text: &str) -> Names {
        let name = match entity.kind.as_str() {
            "text_mention" => {
                let is_us = entity.user.as_ref().is_some_and(|user| user.id == self.bot_id);
                return if is_us { Names::Bot } else { Names::Nobody };
            }
            "mention" | "bot_command" => {
                let entity_text = bytes_of(text, entity).map_or("", |range| &text[range]);
                match entity_text.split_once('@') {
                    None => return Names::Nobody,
                    Some((_, name)) => name,
                }
            }
            _ => return Names::Nobody,
        };
        match self.username.get() {
            None => Names::Unknown,
            Some(ours) if name.eq_ignore_ascii_case(ours) => Names::Bot,
            Some(_) => Names::Other,
        }
    }

    /// The text as Markdown and without the bot's name, which a forwarded message keeps.
    fn text(&self, message: &Message, is_private: bool, is_forwarded: bool) -> String {
        let (text, entities) = (&*message.words.text, &message.words.entities);
        let mut marks: Vec<(Range<usize>, Mark)> = Vec::new();
        for entity in entities {
            let Some(range) = bytes_of(text, entity) else { continue };
            let mark = match entity.kind.as_str() {
                "code" => Mark::Code,
                "pre" => Mark::Block(entity.language.clone().unwrap_or_default()),
                "blockquote" | "expandable_blockquote" => Mark::Quote,
                "date_time" => Mark::Time(entity.unix_time.unwrap_or(-1)),
                kind if !is_private && !is_forwarded && self.names(entity, text) == Names::Bot => {
                    // A command loses only the name: `/stop@belay_bot now` → `/stop now`.
                    let at = text[range.clone()].find('@').filter(|_| kind == "bot_command").unwrap_or_default();
                    marks.push((range.start + at..range.end, Mark::Omitted));
                    continue;
                }
                _ => continue,
            };
            marks.push((range, mark));
        }
        let text = marked::markdown(text, marks);
        let text = text.trim();
        let text = if is_private || is_forwarded { text } else { text.trim_start_matches([',', ':']).trim_start() };
        text.to_owned()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Bot,
    Other,
    Unknown,
    Nobody,
}

/// The sender of a part of an album, and the album.
fn album(message: &Message) -> Option<(u64, String)> {
    Some((person(message)?, message.media_group_id.clone()?))
}

/// The message itself. `None`: it has no number.
fn reference(message: &Message, conversation: Conversation) -> Option<MessageRef> {
    let id = match conversation.is_ephemeral() {
        true => message.ephemeral_message_id,
        false => Some(message.message_id).filter(|id| *id != 0),
    };
    id.map(|id| MessageRef::new(conversation, message.chat.id, id))
}

/// Whether only its author, or its receiver, and the bot see a message.
fn is_ephemeral(message: &Message) -> bool {
    message.ephemeral_message_id.is_some() || message.receiver_user.is_some()
}

/// The move of a group, if the message is about one. Telegram sends one in the old group and one in the new one.
fn moved(message: &Message) -> Option<Verdict> {
    let chat = message.chat.id;
    let to = message.migrate_to_chat_id.map(|to| Verdict::Moved { from: chat, to });
    to.or_else(|| message.migrate_from_chat_id.map(|from| Verdict::Moved { from, to: chat }))
}

/// Whether this status means that the bot is in the chat.
fn is_member(status: &str) -> bool {
    !matches!(status, "left" | "kicked")
}

/// The id of the person who sent a message; `None` for bots, anonymous administrators and automatic forwards.
fn person(message: &Message) -> Option<u64> {
    if message.sender_chat.is_some() || message.is_automatic_forward {
        return None;
    }
    message.from.as_ref().filter(|sender| !sender.is_bot && sender.id != 0).map(|sender| sender.id)
}

/// Converts the range of an entity from UTF-16 units, which Telegram counts, to bytes. `None` if it does not fit the
/// text.
pub(super) fn bytes_of(text: &str, entity: &Entity) -> Option<Range<usize>> {
    let wanted = (entity.offset?, entity.offset?.checked_add(entity.length?)?);
    let (mut units, mut start, mut end) = (0, None, None);
    for (at, c) in text.char_indices().map(|(at, c)| (at, c.len_utf16())).chain([(text.len(), 0)]) {
        if units == wanted.0 {
            start = start.or(Some(at));
        }
        if units == wanted.1 {
            end = end.or(Some(at));
        }
        units += c;
    }
    start.zip(end).map(|(start, end)| start..end)
}

#[cfg(test)]
mod tests;
