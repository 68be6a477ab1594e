//! Pairing, and group messages that are not for the bot.

use belay_protocol::ChannelPeople;

use super::*;

fn with(groups: GroupsConfig, pairing: bool) -> Rules {
    let config = TelegramConfig { allow: vec![42], operators: vec![7], pairing, groups, ..TelegramConfig::default() };
    Rules { people: AllowLists::of(&config), ..rules() }
}

fn edited(rules: &Rules, message: Value) -> Verdict {
    rules.judge(Update::read(&json!({"update_id": 901, "edited_message": message})).unwrap())
}

#[test]
fn a_stranger_may_get_a_code_for_a_new_private_message_alone() {
    let (off, on) = (with(in_groups(GroupAnswer::All), false), with(in_groups(GroupAnswer::All), true));
    let eve = json!({"id": 99, "is_bot": false, "first_name": "Eve\u{202e}", "last_name": "`X`"});
    let private = message(json!({"from": eve, "chat": {"id": 99, "type": "private"}}));
    assert_eq!(line(judge(&off, private.clone())), "(stranger 99)");
    assert_eq!(line(judge(&on, private.clone())), "(stranger 99, Eve `X` in 99)");
    let mut edit = private.clone();
    edit["edit_date"] = json!(2);
    assert_eq!(line(edited(&on, edit)), "(stranger 99)");
    assert_eq!(line(judge(&on, group(json!({"from": eve})))), "(stranger 99)");
    let bot = json!({"id": 99, "is_bot": true, "first_name": "B"});
    assert_eq!(line(judge(&on, message(json!({"from": bot})))), "(not from a person)");
}

#[test]
fn a_person_of_pairing_is_heard_in_private_alone() {
    let rules = with(in_groups(GroupAnswer::All), true);
    let stranger = facts::stranger(&Message::read(&message(json!({}))).unwrap(), 99);
    let paired = belay_protocol::PairedPerson {
        person: stranger,
        admitted_by: "7".into(),
        admitted_through: "telegram".into(),
        admitted_at: belay_protocol::UnixMillis(1),
    };
    rules.people.replace_paired(&[paired]);
    let eve = json!({"id": 99, "is_bot": false, "first_name": "Eve"});
    let Verdict::Message(inbound) = judge(&rules, message(json!({"from": eve, "chat": {"id": 99, "type": "private"}})))
    else {
        panic!("no message")
    };
    assert_eq!((&*inbound.principal.id, inbound.principal.role), ("99", Role::User));
    assert_eq!(line(judge(&rules, group(json!({"from": eve})))), "(stranger 99)");
}

#[test]
fn a_mention_counts_in_a_caption_and_in_an_edit() {
    let rules = with(in_groups(GroupAnswer::Mention), false);
    let text = "@belay_bot look";
    let mention = json!([entity("mention", text, "@belay_bot")]);
    let captioned = json!({"text": null, "caption": text, "caption_entities": mention});
    assert_eq!(line(judge(&rules, group(captioned))), "look");
    let edit = group(json!({"text": text, "entities": mention, "edit_date": 2}));
    assert_eq!(line(edited(&rules, edit)), "(edit) look");
    let unmentioned = group(json!({"message_id": 6, "text": "look", "edit_date": 2}));
    assert_eq!(line(edited(&rules, unmentioned)), "(does not address the bot)");
}

#[test]
fn messages_that_are_not_for_the_bot_come_with_the_next_one_that_is() {
    let groups = GroupsConfig { context_messages: 2, ..in_groups(GroupAnswer::Mention) };
    let rules = with(groups, false);
    let bob = json!({"id": 99, "is_bot": false, "first_name": "Bob"});
    let said = |id: i32, text: &str| group(json!({"message_id": id, "from": bob, "text": text, "date": 60}));
    for (id, text) in [(1, "one"), (2, "two"), (3, "three")] {
        assert_eq!(line(judge(&rules, said(id, text))), "(does not address the bot)");
    }
    let mut edit = said(3, "three, or four");
    edit["edit_date"] = json!(70);
    edited(&rules, edit);
    judge(&rules, group(json!({"message_id": 4, "text": null, "dice": {"emoji": "🎲", "value": 1}})));
    let other_topic = json!({"message_id": 5, "text": "elsewhere", "message_thread_id": 9, "is_topic_message": true});
    judge(&rules, group(other_topic));
    let text = "@belay_bot when?";
    let asked = group(json!({"message_id": 6, "text": text, "entities": [entity("mention", text, "@belay_bot")]}));
    let Verdict::Message(inbound) = judge(&rules, asked) else { panic!("no message") };
    let provenance = inbound.provenance.unwrap();
    let earlier: Vec<_> = provenance.earlier.iter().map(|it| (&*it.sender.name, &*it.at, &*it.text)).collect();
    let at = "1970-01-01T00:01:00.000Z";
    assert_eq!(earlier, [("Bob", at, "two"), ("Bob", at, "three, or four")]);
    assert!(provenance.is_untrusted() && inbound.body == Body::Text("when?".into()));

    let rules = with(in_groups(GroupAnswer::Mention), false);
    judge(&rules, said(1, "one"));
    let Verdict::Message(inbound) = judge(
        &rules,
        group(json!({"message_id": 6, "text": text, "entities": [entity("mention", text, "@belay_bot")]})),
    ) else {
        panic!("no message")
    };
    assert!(inbound.provenance.unwrap().earlier.is_empty(), "no context without the setting");
}

#[test]
fn a_served_group_is_greeted_when_the_bot_is_added_to_it() {
    let bot = json!({"id": 777, "is_bot": true, "first_name": "B"});
    let member = |status: &str| json!({"status": status, "user": bot, "until_date": 0});
    let change = |chat: i64, old: &str, new: &str| {
        let from = json!({"id": 42, "is_bot": false, "first_name": "A"});
        let kind = if chat < 0 { "supergroup" } else { "private" };
        let change = json!({
            "chat": {"id": chat, "type": kind, "title": "G"}, "from": from, "date": 1,
            "old_chat_member": member(old), "new_chat_member": member(new),
        });
        json!({"update_id": 900, "my_chat_member": change})
    };
    let groups = in_groups(GroupAnswer::Mention);
    let config = TelegramConfig { groups: groups.clone(), greeting: "Hello.".into(), ..TelegramConfig::default() };
    let greets = Rules { people: AllowLists::of(&config), ..rules() };
    let silent = Rules { people: AllowLists::of(&TelegramConfig { greeting: " ".into(), ..config }), ..rules() };
    for (rules, chat, old, new, expected) in [
        (&greets, -100, "left", "member", "(added to -100: Hello.)"),
        (&greets, -100, "kicked", "member", "(added to -100: Hello.)"),
        (&greets, -100, "member", "left", "(no addition to a group)"),
        (&greets, -100, "member", "member", "(no addition to a group)"),
        (&greets, -200, "left", "member", "(group -200 is not listed)"),
        (&greets, 42, "left", "member", "(no addition to a group)"),
        (&silent, -100, "left", "member", "(no greeting)"),
    ] {
        let update = Update::read(&change(chat, old, new)).unwrap();
        assert_eq!(line(rules.judge(update)), expected, "{chat} {old} {new}");
    }
}
