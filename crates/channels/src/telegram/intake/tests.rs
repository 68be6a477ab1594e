#![allow(clippy::unwrap_used)]

mod content;
mod people;

use belay_protocol::principal::Role;
use belay_protocol::{AccessDecision, ChannelAccess, Provenance};
use serde_json::{Value, json};

use super::*;
use crate::config::{GroupAnswer, GroupsConfig, TelegramConfig};
use crate::telegram::wire::Read;

fn rules() -> Rules {
    Rules {
        bot_id: 777,
        username: OnceLock::from("Belay_Bot".to_owned()),
        people: people(in_groups(GroupAnswer::Mention)),
        max_age_s: 0,
        since: 0,
        accepted: AcceptedGroupMessages::default(),
        unaddressed: UnaddressedMessages::default(),
        takes_files: false,
    }
}

fn people(groups: GroupsConfig) -> AllowLists {
    AllowLists::of(&TelegramConfig { allow: vec![42], operators: vec![7], groups, ..TelegramConfig::default() })
}

fn in_groups(answer: GroupAnswer) -> GroupsConfig {
    GroupsConfig { allow: vec![-100], answer, ..GroupsConfig::default() }
}

/// A private text message of user 42, with these fields replaced.
fn message(fields: Value) -> Value {
    let mut message = json!({
        "message_id": 5, "date": 1, "text": "hello",
        "from": {"id": 42, "is_bot": false, "first_name": "A"},
        "chat": {"id": 42, "type": "private"},
    });
    for (name, value) in fields.as_object().unwrap() {
        match value {
            Value::Null => message.as_object_mut().unwrap().remove(name),
            value => message.as_object_mut().unwrap().insert(name.clone(), value.clone()),
        };
    }
    message
}

/// The same in a group.
fn group(fields: Value) -> Value {
    let mut all = json!({"chat": {"id": -100, "type": "supergroup", "title": "G"}});
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    message(all)
}

/// An entity over the first occurrence of a part of the text.
fn entity(kind: &str, text: &str, part: &str) -> Value {
    let start = text.find(part).unwrap();
    json!({"type": kind, "offset": text[..start].encode_utf16().count(), "length": part.encode_utf16().count()})
}

fn judge(rules: &Rules, message: Value) -> Verdict {
    rules.judge(Update::read(&json!({"update_id": 900, "message": message})).unwrap())
}

fn words(body: Body) -> String {
    match body {
        Body::Text(text) => text,
        Body::Edit(text) => format!("(edit) {text}"),
        Body::Control(_) => "control".into(),
    }
}

/// The verdict as one line: the text, or the kind of refusal.
fn line(verdict: Verdict) -> String {
    match verdict {
        Verdict::Message(inbound) => words(inbound.body),
        Verdict::WithFiles(inbound, files) => {
            let named = |file: &RemoteFile| format!("{} {}", file.kind, file.id);
            let files: Vec<String> = files.iter().map(named).collect();
            format!("({}) {}", files.join(", "), words(inbound.body))
        }
        Verdict::Tapped(inbound, _) => {
            format!("{:?} of {:?} in {}", inbound.body, inbound.principal, inbound.session)
        }
        Verdict::InvalidTap { words, stranger, .. } => format!("(tap of {stranger:?}: {words})"),
        Verdict::NoText { album, not_read, .. } => format!("(no text, {} of album {album:?})", not_read[0].kind),
        Verdict::Anonymous(conversation, message) => format!("(anonymous, {} in {conversation})", message.unwrap()),
        Verdict::Unreadable(conversation) => format!("(unreadable, in {conversation})"),
        Verdict::TooOld(conversation) => format!("(too old, in {conversation})"),
        Verdict::Stranger(id) => format!("(stranger {id})"),
        Verdict::Pairable(stranger) => {
            format!("(stranger {}, {} in {})", stranger.id, stranger.name, stranger.conversation)
        }
        Verdict::Added(group, greeting) => format!("(added to {group}: {greeting})"),
        Verdict::UnlistedGroup(id) => format!("(group {id} is not listed)"),
        Verdict::Undecided => "(not yet)".into(),
        Verdict::Moved { from, to } => format!("(moved {from} {to})"),
        Verdict::NotForUs(why) => format!("({why})"),
    }
}

#[test]
fn a_private_text_becomes_an_inbound_message() {
    let Verdict::Message(inbound) = judge(&rules(), message(json!({}))) else { panic!("no message") };
    assert_eq!(
        *inbound,
        Inbound {
            key: Some(IdempotencyKey {
                channel: "telegram".into(),
                account: "777".into(),
                message_id: "update:900".into()
            }),
            reply_to: Some(ReplyRoute { channel: "telegram".into(), conversation: "42".into(), reply_to: None }),
            provenance: Some(Arc::new(Provenance { message_id: Some("5".into()), ..Provenance::default() })),
            ..Inbound::new(
                "telegram".into(),
                "telegram:42".into(),
                Principal { id: "42".into(), role: Role::User },
                Body::Text("hello".into())
            )
        }
    );
}

#[test]
fn a_group_text_in_a_topic_is_answered_there_as_a_reply() {
    let text = "@belay_bot hello";
    let sent = group(json!({
        "text": text, "entities": [entity("mention", text, "@belay_bot")],
        "message_thread_id": 9, "is_topic_message": true, "from": {"id": 7, "is_bot": false, "first_name": "O"},
    }));
    let Verdict::Message(inbound) = judge(&rules(), sent) else { panic!("no message") };
    assert_eq!(inbound.session.as_str(), "telegram:-100:9");
    assert_eq!(inbound.principal, Principal::operator("7"));
    let expected = ReplyRoute { channel: "telegram".into(), conversation: "-100:9".into(), reply_to: Some("5".into()) };
    assert_eq!(inbound.reply_to, Some(expected));
    assert_eq!(inbound.body, Body::Text("hello".into()));
}

#[test]
fn a_reply_thread_outside_a_forum_is_no_topic() {
    let sent = group(json!({
        "message_thread_id": 9, "reply_to_message": group(json!({"from": {"id": 777, "is_bot": true, "first_name": "B"}})),
    }));
    let Verdict::Message(inbound) = judge(&rules(), sent) else { panic!("no message") };
    assert_eq!(inbound.session.as_str(), "telegram:-100");
}

#[test]
fn private_messages_are_accepted_from_listed_people_only() {
    let from = |id: u64, is_bot: bool| json!({"id": id, "is_bot": is_bot, "first_name": "X"});
    let photo = json!([{"file_id": "f", "file_unique_id": "u", "width": 1, "height": 1}]);
    for (fields, expected) in [
        (json!({}), "hello"),
        (json!({"from": from(7, false)}), "hello"),
        (json!({"from": from(43, false)}), "(stranger 43)"),
        (json!({"from": from(42, true)}), "(not from a person)"),
        (json!({"from": null}), "(unreadable, in 42)"),
        (json!({"from": {"id": "x"}}), "(unreadable, in 42)"),
        (json!({"from": {"id": "x"}, "chat": {"id": 43, "type": "private"}}), "(not from a person)"),
        (json!({"from": {"id": "x"}, "chat": {"id": -100, "type": "group"}}), "(not from a person)"),
        (json!({"text": {"blocks": []}}), "(unreadable, in 42)"),
        (json!({"text": {"blocks": []}, "from": from(43, false)}), "(stranger 43)"),
        (json!({"sender_chat": {"id": -5, "type": "channel"}}), "(not from a person)"),
        (json!({"text": "  /stop@Belay_Bot  "}), "/stop@Belay_Bot"),
        (json!({"text": "/start"}), "/start"),
        (json!({"text": "/start deep-link"}), "/start deep-link"),
        (json!({"text": "/starting"}), "/starting"),
        (json!({"text": "   "}), "(says nothing)"),
        (json!({"text": null, "photo": photo, "caption": "what is this?"}), "what is this?"),
        (json!({"text": null, "photo": photo}), "(no text, photo of album None)"),
        (json!({"text": null, "photo": photo, "media_group_id": "a1"}), "(no text, photo of album Some(\"a1\"))"),
        (json!({"text": null, "photo": photo, "from": from(43, false)}), "(stranger 43)"),
        (json!({"text": null, "group_chat_created": true}), "(says nothing)"),
        (json!({"chat": {"id": -5, "type": "channel"}}), "(a channel post)"),
        // Telegram adds fields; an unknown field changes nothing.
        (json!({"some_future_field": {"x": [1]}}), "hello"),
    ] {
        assert_eq!(line(judge(&rules(), message(fields.clone()))), expected, "{fields}");
    }
}

#[test]
fn in_groups_only_messages_that_address_the_bot_are_relevant() {
    let bot = json!({"id": 777, "is_bot": true, "first_name": "B"});
    let other = json!({"id": 778, "is_bot": true, "first_name": "B"});
    let not_us = "(does not address the bot)";
    let say = |text: &str, kind: &str, part: &str| json!({"text": text, "entities": [entity(kind, text, part)]});
    let with = |mut fields: Value, name: &str, value: Value| {
        fields.as_object_mut().unwrap().insert(name.into(), value);
        fields
    };
    for (fields, expected) in [
        (json!({}), not_us),
        (json!({"text": "@belay_bot without an entity"}), not_us),
        (say("@belay_bot hi", "mention", "@belay_bot"), "hi"),
        (say("@BELAY_BOT: hi", "mention", "@BELAY_BOT"), "hi"),
        (say("hey @belay_bot what's up", "mention", "@belay_bot"), "hey what's up"),
        (say("🗝🗝 ключ @belay_bot 🗝", "mention", "@belay_bot"), "🗝🗝 ключ 🗝"),
        (say("@belay_bot /stop", "mention", "@belay_bot"), "/stop"),
        (say("@belay_bot2 hi", "mention", "@belay_bot2"), not_us),
        (say("@belay_bot", "mention", "@belay_bot"), "(says nothing)"),
        (
            with(
                say("@belay_bot hi", "mention", "@belay_bot"),
                "from",
                json!({"id": 43, "is_bot": false, "first_name": "X"}),
            ),
            "(stranger 43)",
        ),
        (say("/stop@belay_bot now", "bot_command", "/stop@belay_bot"), "/stop now"),
        (say("/stop", "bot_command", "/stop"), not_us),
        (say("/stop@other_bot", "bot_command", "/stop@other_bot"), "(a command for another bot)"),
        (
            with(
                say("/stop@other_bot", "bot_command", "/stop@other_bot"),
                "reply_to_message",
                group(json!({"from": bot})),
            ),
            "(a command for another bot)",
        ),
        (with(say("/stop", "bot_command", "/stop"), "reply_to_message", group(json!({"from": bot}))), "/stop"),
        (json!({"reply_to_message": group(json!({"from": bot}))}), "hello"),
        (json!({"reply_to_message": group(json!({"from": other}))}), not_us),
        (
            json!({"reply_to_message": group(json!({"from": bot, "forum_topic_created": {"name": "T", "icon_color": 1}}))}),
            not_us,
        ),
        (
            json!({"text": "Belay hi", "entities": [{"type": "text_mention", "offset": 0, "length": 5, "user": bot}]}),
            "hi",
        ),
        (
            json!({"text": "Belay hi", "entities": [{"type": "text_mention", "offset": 0, "length": 5, "user": other}]}),
            not_us,
        ),
        // Entities that do not fit the text are no mention and no panic.
        (json!({"text": "🗝", "entities": [{"type": "mention", "offset": 1, "length": 9}]}), not_us),
        (
            json!({"text": "@belay_bot @belay_bot hi", "entities": [
                {"type": "mention", "offset": 11, "length": 10}, {"type": "mention", "offset": 0, "length": 10},
                {"type": "mention", "offset": 0, "length": 10},
            ]}),
            "hi",
        ),
        (
            json!({"text": null, "caption": "@belay_bot see", "caption_entities": [{"type": "mention", "offset": 0, "length": 10}]}),
            "see",
        ),
    ] {
        assert_eq!(line(judge(&rules(), group(fields.clone()))), expected, "{fields}");
    }
}

#[test]
fn where_everything_is_for_the_bot_people_on_the_lists_need_not_name_it() {
    let rules = Rules { people: people(in_groups(GroupAnswer::All)), ..rules() };
    let stranger = json!({"id": 43, "is_bot": false, "first_name": "X"});
    let command = |text: &str| json!({"text": text, "entities": [entity("bot_command", text, text)]});
    for (fields, expected) in [
        (json!({}), "hello"),
        (json!({"from": stranger}), "(stranger 43)"),
        (command("/stop"), "/stop"),
        (command("/stop@belay_bot"), "/stop"),
        (command("/stop@other_bot"), "(a command for another bot)"),
    ] {
        assert_eq!(line(judge(&rules, group(fields.clone()))), expected, "{fields}");
    }
}

#[test]
fn messages_of_an_unlisted_group_are_ignored() {
    let elsewhere = json!({"id": -200, "type": "group", "title": "H"});
    let text = "@belay_bot hi";
    let mention = json!([entity("mention", text, "@belay_bot")]);
    for answer in [GroupAnswer::Mention, GroupAnswer::All] {
        for username in [OnceLock::new(), OnceLock::from("Belay_Bot".to_owned())] {
            let rules = Rules { people: people(in_groups(answer)), username, ..rules() };
            for from in [7, 42, 43] {
                let sent = message(json!({
                    "chat": elsewhere, "text": text, "entities": mention,
                    "from": {"id": from, "is_bot": false, "first_name": "X"},
                }));
                assert_eq!(line(judge(&rules, sent)), "(group -200 is not listed)");
            }
        }
    }
}

#[test]
fn conversations_of_two_people_two_groups_and_two_topics_are_never_the_same() {
    let groups = GroupsConfig { allow: vec![-42, -100], answer: GroupAnswer::All, ..GroupsConfig::default() };
    let config = TelegramConfig { allow: vec![42, 44], groups, ..TelegramConfig::default() };
    let rules = Rules { people: AllowLists::of(&config), ..rules() };
    let from = |id: u64| json!({"id": id, "is_bot": false, "first_name": "X"});
    let of = |from: Value, chat: i64, kind: &str, topic: Option<i32>| {
        let mut fields = json!({"from": from, "chat": {"id": chat, "type": kind, "title": "T"}});
        if let Some(topic) = topic {
            fields["message_thread_id"] = json!(topic);
            fields["is_topic_message"] = json!(true);
        }
        match judge(&rules, message(fields)) {
            Verdict::Message(inbound) => inbound.session.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let keys = [
        of(from(42), 42, "private", None),
        of(from(44), 44, "private", None),
        of(from(42), -42, "group", None),
        of(from(44), -100, "supergroup", None),
        of(from(44), -100, "supergroup", Some(9)),
        of(from(44), -100, "supergroup", Some(10)),
    ];
    assert_eq!(
        keys,
        ["telegram:42", "telegram:44", "telegram:-42", "telegram:-100", "telegram:-100:9", "telegram:-100:10"]
    );
    let shared = of(from(42), -100, "supergroup", Some(9));
    assert_eq!(shared, keys[4], "a topic is one conversation, whoever speaks in it");
}

#[test]
fn before_the_bots_name_is_known_a_message_with_a_mention_is_undecided() {
    let rules = Rules { username: OnceLock::new(), ..rules() };
    let bot = json!({"id": 777, "is_bot": true, "first_name": "B"});
    let mention = json!([{"type": "mention", "offset": 0, "length": 10}]);
    for (fields, expected) in [
        (json!({"text": "@belay_bot hi", "entities": mention}), "(not yet)"),
        (json!({"text": "hi"}), "(does not address the bot)"),
        (json!({"text": "hi", "reply_to_message": group(json!({"from": bot}))}), "hi"),
    ] {
        assert_eq!(line(judge(&rules, group(fields.clone()))), expected, "{fields}");
    }
    assert_eq!(line(judge(&rules, message(json!({"text": "@belay_bot hi", "entities": mention})))), "@belay_bot hi");
}

#[test]
fn a_tap_is_an_answer_of_its_person_in_the_conversation_of_its_question() {
    let approval = belay_protocol::ApprovalId::new();
    let query = |from: u64, data: &str, message: Value| {
        let query = json!({
            "id": "q1", "chat_instance": "c", "data": data, "message": message,
            "from": {"id": from, "is_bot": false, "first_name": "X"},
        });
        let mut update = json!({"update_id": 900, "callback_query": query});
        if message.is_null() {
            update["callback_query"].as_object_mut().unwrap().remove("message");
        }
        line(rules().judge(Update::read(&update).unwrap()))
    };
    let bot = json!({"id": 777, "is_bot": true, "first_name": "B"});
    let own = message(json!({"from": bot}));
    let topic = group(json!({"from": bot, "message_thread_id": 9, "is_topic_message": true}));
    let elsewhere = message(json!({"from": bot, "chat": {"id": -200, "type": "group", "title": "H"}}));
    let decide = |decision, who: Principal, session: &str| {
        let body = Body::Control(Control::Decide { approval, decision });
        format!("{body:?} of {who:?} in {session}")
    };
    let user = Principal { id: "42".into(), role: Role::User };
    use belay_protocol::Decision::{Always, Approve, Deny};
    for (from, data, message, expected) in [
        (42, format!("belay:a:{approval}"), &own, decide(Approve, user.clone(), "telegram:42")),
        (42, format!("belay:y:{approval}"), &topic, decide(Always, user, "telegram:-100:9")),
        (7, format!("belay:d:{approval}"), &topic, decide(Deny, Principal::operator("7"), "telegram:-100:9")),
        (43, format!("belay:a:{approval}"), &topic, format!("(tap of Some(43): {NOT_YOURS})")),
        (42, format!("belay:a:{approval}"), &elsewhere, format!("(tap of None: {NOT_HERE})")),
        (42, "belay:a:17".into(), &own, format!("(tap of None: {OUT_OF_USE})")),
        (42, format!("belay:a:{approval}"), &Value::Null, format!("(tap of None: {OUT_OF_USE})")),
    ] {
        assert_eq!(query(from, &data, message.clone()), expected, "{from} {data}");
    }
}

#[test]
fn a_later_access_check_agrees_with_the_admission_of_a_message() {
    let rules = Rules { people: people(in_groups(GroupAnswer::All)), ..rules() };
    for sender in [42, 7, 43] {
        for (chat, kind) in [(sender, "private"), (-100, "group"), (-200, "group")] {
            let from = json!({"id": sender, "is_bot": false, "first_name": "X"});
            let chat = json!({"id": chat, "type": kind, "title": "T"});
            let let_in = match judge(&rules, message(json!({"from": from, "chat": chat}))) {
                Verdict::Message(inbound) => Some(inbound.principal.role.into()),
                _ => None,
            };
            let conversation = chat["id"].to_string();
            let standing = rules.people.standing_of(&sender.to_string(), Some(&conversation));
            let later = match standing {
                AccessDecision::May(place) => Some(place),
                AccessDecision::NotAllowed(_) => None,
            };
            assert_eq!(later, let_in, "{sender} in {conversation}");
        }
    }
}

#[test]
fn a_text_that_somebody_else_wrote_is_relayed_and_no_command_of_the_channel_either() {
    let bot = json!({"id": 778, "is_bot": true, "first_name": "B"});
    let carl = json!({"type": "hidden_user", "date": 1, "sender_user_name": "Carl"});
    let ann = json!({"id": 42, "is_bot": false, "first_name": "A"});
    let reply = json!({"message_id": 4, "date": 1, "text": "/quit", "from": ann, "via_bot": bot,
        "chat": {"id": 42, "type": "private"}});
    let photo = json!([{"file_id": "f", "file_unique_id": "u", "width": 1, "height": 1}]);
    for (fields, author) in [
        (json!({}), None),
        (json!({"via_bot": bot}), Some("the bot B")),
        (json!({"sender_business_bot": bot}), Some("the bot B")),
        (json!({"forward_origin": carl}), Some("Carl")),
        (json!({"forward_origin": carl, "via_bot": bot}), Some("Carl")),
        // What it replies to and quotes is data beside its own text.
        (json!({"reply_to_message": reply, "quote": {"text": "/quit", "position": 0}}), None),
        (json!({"external_reply": {"origin": carl}, "quote": {"text": "/quit", "position": 0}}), None),
    ] {
        let Verdict::Message(inbound) = judge(&rules(), message(fields.clone())) else { panic!("no message") };
        let known = inbound.provenance.as_deref().expect("facts");
        assert_eq!((inbound.is_relayed(), known.forwarded_from.as_deref()), (author.is_some(), author), "{fields}");
        // A word to end the daemon from before its start is dropped, unless it is only a text.
        let mut old = message(fields.clone());
        old.as_object_mut().unwrap().extend([("text".to_owned(), json!("/quit")), ("date".to_owned(), json!(1))]);
        let verdict = judge(&Rules { since: 1000, ..rules() }, old);
        assert_eq!(matches!(verdict, Verdict::Message(_)), author.is_some(), "{fields}");
        // Only a command takes no files.
        let mut sent = message(fields.clone());
        sent.as_object_mut().unwrap().remove("text");
        sent.as_object_mut()
            .unwrap()
            .extend([("photo".to_owned(), photo.clone()), ("caption".to_owned(), json!("/stop"))]);
        let verdict = judge(&Rules { takes_files: true, ..rules() }, sent);
        assert_eq!(matches!(verdict, Verdict::WithFiles(..)), author.is_some(), "{fields}");
    }
}

#[test]
fn a_post_of_a_channel_or_of_an_anonymous_administrator_is_no_message_of_a_person() {
    let chat = json!({"id": -7, "type": "channel", "title": "News"});
    for fields in [json!({"sender_chat": chat}), json!({"is_automatic_forward": true})] {
        let fields = json!({"text": "/quit"})
            .as_object()
            .unwrap()
            .iter()
            .chain(fields.as_object().unwrap())
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        assert_eq!(line(judge(&rules(), message(Value::Object(fields)))), "(not from a person)");
    }
}

#[test]
fn a_message_with_a_file_waits_for_it_if_files_are_taken() {
    let photo = json!([{"file_id": "f", "file_unique_id": "u", "width": 1, "height": 1}]);
    let video = json!({"file_id": "v", "file_unique_id": "u", "width": 1, "height": 1, "duration": 1});
    let origin = json!({"type": "hidden_user", "date": 1, "sender_user_name": "Carl"});
    for (fields, taken, not_taken) in [
        (json!({"photo": photo}), &*format!("(photo f) {NO_TEXT}"), "(no text, photo of album None)"),
        (json!({"photo": photo, "caption": "see"}), "(photo f) see", "see"),
        (json!({"photo": photo, "caption": "/job see"}), "(photo f) /job see", "/job see"),
        (json!({"photo": photo, "caption": "/stop"}), "/stop", "/stop"),
        (json!({"photo": photo, "caption": "/stop", "forward_origin": origin}), "(photo f) /stop", "/stop"),
        (json!({"video": video}), "(no text, video of album None)", "(no text, video of album None)"),
        (json!({"video": video, "caption": "see"}), "see", "see"),
    ] {
        let mut sent = message(json!({"text": null}));
        sent.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let taking = Rules { takes_files: true, ..rules() };
        assert_eq!(line(judge(&taking, sent.clone())), taken, "{fields}");
        assert_eq!(line(judge(&rules(), sent)), not_taken, "{fields}");
    }
}

#[test]
fn other_kinds_of_update_are_not_for_us() {
    for kind in ["edited_message", "channel_post", "edited_channel_post", "business_message"] {
        let update = Update::read(&json!({"update_id": 1, kind: message(json!({}))})).unwrap();
        assert_eq!(line(rules().judge(update)), "(no new message)", "{kind}");
    }
}

#[test]
fn a_word_to_end_the_daemon_from_before_its_start_is_not_for_it() {
    let rules = Rules { since: 1000, ..rules() };
    for (text, date, is_ours) in [
        ("/quit", 999, false),
        ("/Shutdown now", 999, false),
        ("/exit@belay_bot", 999, false),
        ("/quit", 1000, true), // Telegram counts whole seconds: it may have been sent after the start
        ("/quit", 1001, true),
        ("/status", 999, true),
        ("what does /quit do?", 999, true),
    ] {
        let verdict = judge(&rules, message(json!({"text": text, "date": date})));
        assert_eq!(matches!(verdict, Verdict::Message(_)), is_ours, "{text} at {date}");
    }
}

#[test]
fn what_was_written_long_before_the_start_is_not_answered_as_new() {
    let start = 1_000_000;
    for (max_age_s, date, expected) in [
        (3600, start - 3601, "(too old, in 42)"),
        (3600, start - 3600, "hello"),
        (3600, start + 1, "hello"),
        (0, 1, "hello"),
        (u64::MAX, 1, "hello"),
    ] {
        let rules = Rules { since: start, max_age_s, ..rules() };
        assert_eq!(line(judge(&rules, message(json!({ "date": date })))), expected, "{max_age_s} s, {date}");
    }
    // Messages that the bot ignores anyway get no notice.
    let rules = Rules { since: start, max_age_s: 3600, ..rules() };
    let stranger = json!({"from": {"id": 99, "is_bot": false, "first_name": "S"}});
    assert_eq!(line(judge(&rules, message(stranger))), "(stranger 99)");
    assert_eq!(line(judge(&rules, group(json!({})))), "(does not address the bot)");
}

#[test]
fn a_forward_keeps_its_words_and_is_marked_and_an_edit_is_an_edit() {
    let origin = json!({"type": "hidden_user", "date": 1, "sender_user_name": "Carl"});
    for text in ["yes", "/stop", "/start", "@belay_bot /quit"] {
        let Verdict::Message(inbound) = judge(&rules(), message(json!({"text": text, "forward_origin": origin})))
        else {
            panic!("no message")
        };
        assert_eq!(inbound.body, Body::Text(text.into()));
        assert!(inbound.is_relayed(), "{text}");
    }
    let edited = |fields: Value| {
        let update = json!({"update_id": 900, "edited_message": message(fields)});
        line(rules().judge(Update::read(&update).unwrap()))
    };
    let photo = json!([{"file_id": "f", "file_unique_id": "u", "width": 1, "height": 1}]);
    for (fields, expected) in [
        (json!({"edit_date": 2}), "(edit) hello"),
        (json!({"edit_date": 2, "text": null, "photo": photo, "caption": "a"}), "(edit) a"),
        (json!({"edit_date": 2, "text": null, "photo": photo}), "(says nothing)"),
        (json!({}), "(no new message)"),
    ] {
        assert_eq!(edited(fields.clone()), expected, "{fields}");
    }
}

#[test]
fn an_edit_that_removes_the_mention_from_an_accepted_group_message_is_still_for_the_bot() {
    let rules = rules();
    let with_mention = |text: &str| json!({"text": text, "entities": [entity("mention", text, "@belay_bot")]});
    let edited = |fields: Value| {
        let mut message = group(fields);
        message.as_object_mut().unwrap().insert("edit_date".into(), json!(2));
        let update = json!({"update_id": 901, "edited_message": message});
        line(rules.judge(Update::read(&update).unwrap()))
    };
    let plain = json!({"text": "count the rooms"});
    assert_eq!(edited(plain.clone()), "(does not address the bot)", "it was never for us");
    assert_eq!(line(judge(&rules, group(with_mention("@belay_bot count")))), "count");
    assert_eq!(edited(plain.clone()), "(edit) count the rooms");
    let mut another = plain;
    another.as_object_mut().unwrap().insert("message_id".into(), json!(6));
    assert_eq!(edited(another), "(does not address the bot)");
}
