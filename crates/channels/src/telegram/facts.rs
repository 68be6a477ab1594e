//! Reads the metadata of a Telegram message: sender, replied-to message, forward origin and targets of links. Pure.

use belay_protocol::provenance::{Audience, Author, Link, Person, Provenance, Quote};
use belay_protocol::{ChannelId, EarlierMessage, Stranger, UnixMillis, Unread, plain_line};

use super::NAME;
use super::attached::{self, RemoteFile};
use super::conversation::MessageRef;
use super::intake::bytes_of;
use super::shared;
use super::wire::{Chat, Content, Entity, Message, Origin, User, Words};

/// Longest name of a stranger, in characters. 129: Telegram's first and last name have 64 each.
const NAME_MAX_CHARS: usize = 129;

/// Longest name of an unknown kind of message, in characters. 40: the longest known one has 32.
const KIND_MAX_CHARS: usize = 40;

/// The name of an author whom this version cannot read: the text is another's all the same.
const SOMEBODY: &str = "somebody";

/// Longest text of a message that is not for the bot, in characters. The rest of it is not kept.
const EARLIER_MAX_CHARS: usize = 500;

/// The provenance of a message, without its attachments. In a private chat the sender is left out: the conversation has
/// only one person.
pub(super) fn provenance(
    message: &Message,
    bot_id: u64,
    is_private: bool,
    reference: Option<MessageRef>,
) -> Provenance {
    let sender = message.from.as_ref().filter(|_| !is_private).map(person);
    Provenance {
        audience: if is_private { Audience::Person } else { Audience::Group },
        sender,
        forwarded_from: author(message),
        reply_to: quote(message, bot_id),
        links: links(&message.words),
        shared: shared::lines(&message.content),
        message_id: reference.map(|reference| reference.to_string()),
        ..Provenance::default()
    }
    .cleaned()
}

/// The author of the text, if that is not the sender: the author of a forwarded message, or the bot that wrote it.
fn author(message: &Message) -> Option<String> {
    let forwarded = message.forward_origin.as_ref().map(origin_name);
    forwarded.or_else(|| bot_author(message).map(|bot| format!("the bot {}", full_name(bot))))
}

/// The bot that wrote the text of a person's message: an inline bot, or a bot that manages the person's account.
///
/// Telegram: `Message`, `via_bot` and `sender_business_bot`.
pub(super) fn bot_author(message: &Message) -> Option<&User> {
    message.via_bot.as_ref().or(message.sender_business_bot.as_ref())
}

/// A message that is not for the bot; `None`: it has no text.
pub(super) fn earlier(message: &Message) -> Option<EarlierMessage> {
    let text: String = visible(&message.words.text).trim().chars().take(EARLIER_MAX_CHARS).collect();
    let seconds = i64::try_from(message.date.unwrap_or_default()).unwrap_or_default();
    let at = UnixMillis(seconds.saturating_mul(1_000)).to_rfc3339();
    let sender = message.from.as_ref().map(person)?;
    (!text.is_empty()).then_some(EarlierMessage { sender, at, text })
}

/// The person of a private message.
pub(super) fn stranger(message: &Message, id: u64) -> Stranger {
    let name = message.from.as_ref().map(full_name).unwrap_or_default();
    Stranger {
        channel: ChannelId::new(NAME),
        id: id.to_string(),
        name: plain_line(&name, NAME_MAX_CHARS),
        conversation: message.chat.id.to_string(),
    }
}

/// Removes hidden characters.
pub(super) fn visible(text: &str) -> String {
    belay_text::removed(text).into_owned()
}

fn person(user: &User) -> Person {
    Person { name: full_name(user), username: user.username.as_deref().map(visible), id: user.id.to_string() }
}

fn full_name(user: &User) -> String {
    let last = user.last_name.as_deref().unwrap_or_default();
    visible(format!("{} {last}", user.first_name).trim())
}

fn chat_name(chat: &Chat) -> String {
    visible(&chat.title.clone().or_else(|| chat.username.clone()).unwrap_or_else(|| chat.id.to_string()))
}

fn origin_name(origin: &Origin) -> String {
    let user = origin.sender_user.as_ref().map(full_name);
    let chat = || origin.sender_chat.as_ref().or(origin.chat.as_ref()).map(chat_name);
    let name = user.or_else(|| origin.sender_user_name.as_deref().map(visible)).or_else(chat);
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| SOMEBODY.to_owned())
}

/// The content of a message, if this version does not know its kind.
pub(super) fn unknown(message: &Message) -> Vec<Unread> {
    let kind = message.unknown.0.as_deref().map(|kind| plain_line(&visible(kind), KIND_MAX_CHARS));
    kind.map(|kind| Unread { kind, ..Unread::default() }).into_iter().collect()
}

/// The message that the message replies to: the part that its sender has quoted, or else all of it.
fn quote(message: &Message, bot_id: u64) -> Option<Quote> {
    let chosen = message.quote.as_ref().map(|quote| visible(&quote.text));
    if let Some(reply) = &message.external_reply {
        // From another chat: the text is known only if the sender quoted a part.
        let name = reply.origin.as_ref().map(origin_name).or_else(|| Some(SOMEBODY.to_owned()));
        return Some(Quote { name, text: chosen.unwrap_or_default(), ..content(&reply.content) });
    }
    // Every message of a topic "replies" to the topic's creation.
    let replied = message.reply_to_message.as_deref().filter(|replied| replied.forum_topic_created.is_none())?;
    let relayed = author(replied);
    let (author, name) = match (replied.from.as_ref(), replied.sender_chat.as_ref()) {
        // The text of a forwarded message, or of one that a bot wrote for its sender, is not the sender's own.
        _ if relayed.is_some() => (Author::Other, relayed),
        (_, Some(chat)) => (Author::Other, Some(chat_name(chat))),
        (Some(user), None) if user.id == bot_id => (Author::Assistant, None),
        (Some(user), None) if message.from.as_ref().is_some_and(|sender| sender.id == user.id) => {
            (Author::Sender, None)
        }
        (Some(user), None) => (Author::Other, Some(full_name(user))),
        (None, None) => (Author::Other, None),
    };
    let chosen = chosen.or_else(|| chosen_part(message, &replied.content));
    let text = chosen.unwrap_or_else(|| visible(&replied.words.text));
    Some(Quote { author, name, text, ..content(&replied.content) })
}

/// The kind and the content of a quoted message besides its text.
fn content(content: &Content) -> Quote {
    let file = attached::not_read(content, false).into_iter().next().map(|file| file.kind);
    let kind = file.or_else(|| shared::kind(content).map(str::to_owned));
    Quote { kind, shared: shared::lines(content), ..Quote::default() }
}

/// The task of a checklist, or the option of a poll, that the sender has chosen to reply to.
fn chosen_part(message: &Message, content: &Content) -> Option<String> {
    let id = message.reply_to_checklist_task_id;
    let tasks = content.checklist.iter().flat_map(|list| &list.tasks);
    let task = tasks.filter(|task| id.is_some() && task.id == id).map(|task| &task.text).next();
    let id = message.reply_to_poll_option_id.as_ref();
    let options = content.poll.iter().flat_map(|poll| &poll.options);
    let mut options = options.filter(|option| id.is_some() && option.persistent_id.as_ref() == id);
    task.or_else(|| options.next().map(|option| &option.text)).map(|text| visible(text))
}

/// The file of the message that the message replies to.
pub(super) fn quoted_file(message: &Message) -> Option<RemoteFile> {
    let replied = message.reply_to_message.as_deref().map(|replied| &replied.content);
    let content = message.external_reply.as_deref().map(|reply| &reply.content).or(replied)?;
    attached::file(content).map(RemoteFile::quoted)
}

/// Links whose text hides their URL.
fn links(words: &Words) -> Vec<Link> {
    let hidden = words.entities.iter().filter(|entity| entity.kind == "text_link");
    let link = |entity: &Entity| {
        let text = bytes_of(&words.text, entity).map_or_else(String::new, |range| visible(&words.text[range]));
        entity.url.as_ref().map(|url| Link { text, url: visible(url) })
    };
    hidden.filter_map(link).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::telegram::wire::Read;

    fn provenance(message: &Message, bot_id: u64, is_private: bool) -> Provenance {
        let reference = Some(message.message_id.to_string().parse().unwrap());
        super::provenance(message, bot_id, is_private, reference)
    }

    fn message(fields: Value) -> Message {
        let mut message = json!({
            "message_id": 5, "date": 1, "from": {"id": 42, "is_bot": false, "first_name": "Ann", "last_name": "Lee"},
            "chat": {"id": -100, "type": "group", "title": "G"},
        });
        message.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        Message::read(&message).unwrap()
    }

    fn shown(fields: Value, is_private: bool) -> String {
        let message = message(fields);
        provenance(&message, 777, is_private).render(&message.words.text)
    }

    #[test]
    fn in_a_group_the_model_reads_who_speaks_and_in_private_it_need_not() {
        let sender = "<message_info>{\"sender\":{\"name\":\"Ann Lee\",\"id\":\"42\"}}</message_info>\nhi";
        assert_eq!(shown(json!({"text": "hi"}), false), sender);
        assert_eq!(shown(json!({"text": "hi"}), true), "hi");
    }

    #[test]
    fn hidden_characters_are_removed_from_names_and_quotes() {
        let evil = "An\u{202e}n\u{e0041}\u{200b}";
        let from = json!({"id": 43, "is_bot": false, "first_name": evil, "username": evil});
        let reply =
            json!({"message_id": 4, "date": 1, "text": evil, "from": from, "chat": {"id": -100, "type": "group"}});
        let known = provenance(&message(json!({"text": "hi", "from": from, "reply_to_message": reply})), 777, false);
        let sender = known.sender.unwrap();
        assert_eq!(
            (&*sender.name, sender.username.as_deref(), &*known.reply_to.unwrap().text),
            ("Ann", Some("Ann"), "Ann")
        );
    }

    #[test]
    fn the_model_reads_what_is_replied_to_and_by_whom_it_was_written() {
        let reply = |from: Value| json!({"message_id": 4, "date": 1, "text": "at noon?", "from": from, "chat": {"id": -100, "type": "group"}});
        let bot = json!({"id": 777, "is_bot": true, "first_name": "B"});
        let ann = json!({"id": 42, "is_bot": false, "first_name": "Ann"});
        let bob = json!({"id": 43, "is_bot": false, "first_name": "Bob"});
        let mut passed_on = reply(ann.clone());
        passed_on["forward_origin"] = json!({"type": "hidden_user", "date": 1, "sender_user_name": "Carl"});
        let written_by = |field: &str| {
            let mut message = reply(ann.clone());
            message[field] = json!({"id": 9, "is_bot": true, "first_name": "Pics"});
            message
        };
        let mut topic = reply(bob.clone());
        topic["forum_topic_created"] = json!({"name": "T", "icon_color": 1});
        let origin = json!({"type": "channel", "date": 1, "message_id": 9, "chat": {"id": -7, "type": "channel", "title": "News"}});
        for (fields, expected) in [
            (json!({"reply_to_message": reply(bot)}), r#"{"author":"assistant","text":"at noon?"}"#),
            (
                json!({"reply_to_message": written_by("via_bot")}),
                r#"{"author":"other","name":"the bot Pics","text":"at noon?"}"#,
            ),
            (
                json!({"reply_to_message": written_by("sender_business_bot")}),
                r#"{"author":"other","name":"the bot Pics","text":"at noon?"}"#,
            ),
            (json!({"reply_to_message": reply(ann.clone())}), r#"{"author":"sender","text":"at noon?"}"#),
            (json!({"reply_to_message": reply(bob.clone())}), r#"{"author":"other","name":"Bob","text":"at noon?"}"#),
            (json!({"reply_to_message": passed_on}), r#"{"author":"other","name":"Carl","text":"at noon?"}"#),
            (
                json!({"reply_to_message": reply(bob), "quote": {"text": "noon", "position": 3}}),
                r#"{"author":"other","name":"Bob","text":"noon"}"#,
            ),
            (
                json!({"external_reply": {"origin": origin}, "quote": {"text": "rain", "position": 0}}),
                r#"{"author":"other","name":"News","text":"rain"}"#,
            ),
            (json!({"reply_to_message": topic}), "null"),
        ] {
            let quote = provenance(&message(fields.clone()), 777, false).reply_to;
            assert_eq!(serde_json::to_string(&quote).unwrap(), expected, "{fields}");
        }
    }

    #[test]
    fn forwards_are_marked_with_their_origin() {
        let user = json!({"id": 9, "is_bot": false, "first_name": "Eve", "last_name": "X"});
        for (origin, expected) in [
            (json!({"type": "user", "date": 1, "sender_user": user}), "Eve X"),
            (json!({"type": "hidden_user", "date": 1, "sender_user_name": "Carl"}), "Carl"),
            (json!({"type": "chat", "date": 1, "sender_chat": {"id": -3, "type": "group", "title": "Club"}}), "Club"),
            (
                json!({"type": "channel", "date": 1, "message_id": 1, "chat": {"id": -4, "type": "channel", "title": "News"}}),
                "News",
            ),
        ] {
            let forwarded = provenance(&message(json!({"text": "yes", "forward_origin": origin})), 777, true);
            assert_eq!(forwarded.forwarded_from.as_deref(), Some(expected));
            assert!(forwarded.is_forwarded() && forwarded.is_untrusted());
        }
    }

    #[test]
    fn links_that_hide_their_address_say_where_they_lead() {
        let links = provenance(
            &message(json!({"text": "🗝 see here, https://a.example", "entities": [
                {"type": "text_link", "offset": 7, "length": 4, "url": "https://b.example/x?y=1"},
                {"type": "url", "offset": 13, "length": 17},
            ]})),
            777,
            true,
        )
        .links;
        assert_eq!(links, [Link { text: "here".into(), url: "https://b.example/x?y=1".into() }]);
    }
}
