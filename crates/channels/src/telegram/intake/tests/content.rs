//! What messages say besides plain text, and in whose name.

use super::*;

fn inbound(rules: &Rules, message: Value) -> Inbound {
    match judge(rules, message) {
        Verdict::Message(inbound) => *inbound,
        other => panic!("{other:?}"),
    }
}

fn rich(text: Value) -> Value {
    json!({"text": null, "rich_message": {"blocks": [{"type": "paragraph", "text": text}]}})
}

#[test]
fn a_rich_message_without_a_text_is_text() {
    let mention = json!([{"type": "mention", "text": "@belay_bot", "username": "belay_bot"}, " please add 2 and 3"]);
    let origin = json!({"type": "user", "date": 1, "sender_user": {"id": 9, "is_bot": false, "first_name": "Eve"}});
    let mut forwarded = rich(json!("please add 2 and 3"));
    forwarded["forward_origin"] = origin;
    for (sent, expected) in [
        (message(rich(json!("please add 2 and 3"))), "please add 2 and 3"),
        (message(rich(json!("/stop"))), "/stop"),
        (message(forwarded), "please add 2 and 3"),
        (group(rich(mention)), "please add 2 and 3"),
        (group(rich(json!("please add 2 and 3"))), "(does not address the bot)"),
        (message(json!({"text": null, "rich_message": {"blocks": []}})), "(unreadable, in 42)"),
        (message(json!({"text": null, "rich_message": {"blocks": [{"type": "photo", "photo": []}]}})), "(photo)"),
    ] {
        assert_eq!(line(judge(&rules(), sent.clone())), expected, "{sent}");
    }
    // One that is replied to has its words as well, also Belay's own.
    let mut own = rich(json!("The sum is **5**."));
    own["from"] = json!({"id": 777, "is_bot": true, "first_name": "B"});
    let known = inbound(&rules(), message(json!({"text": "thanks", "reply_to_message": message(own)})));
    let quote = known.provenance.unwrap().reply_to.clone().unwrap();
    assert_eq!(quote.text, "The sum is **5**.");
}

#[test]
fn what_a_message_shares_is_data_for_the_model() {
    let place = json!({"latitude": 52.5, "longitude": 13.4});
    let option = json!({"text": "Mon", "voter_count": 0});
    for (fields, expected) in [
        (json!({"location": place}), "location: latitude 52.5, longitude 13.4"),
        (
            json!({"venue": {"location": place, "title": "Museum", "address": "Main St 1"}, "location": place}),
            "venue: Museum, Main St 1 (location: latitude 52.5, longitude 13.4)",
        ),
        (json!({"contact": {"phone_number": "+1", "first_name": "Ann"}}), "contact: Ann, +1"),
        (json!({"poll": {"question": "When?", "options": [option]}}), "poll: When? Options: Mon"),
        (
            json!({"checklist": {"title": "Trip", "tasks": [{"id": 1, "text": "pack"}]}}),
            "checklist: Trip Tasks: [ ] pack",
        ),
        (json!({"dice": {"emoji": "🎲", "value": 4}}), "dice 🎲: 4"),
    ] {
        for (text, words) in [(Value::Null, NO_TEXT), (json!("see"), "see")] {
            let mut sent = fields.clone();
            sent["text"] = text;
            let known = inbound(&rules(), message(sent));
            assert_eq!(known.body, Body::Text(words.to_owned()));
            let facts = known.provenance.unwrap();
            assert_eq!((facts.shared.join("\n").as_str(), facts.not_read.len()), (expected, 0), "{fields}");
            assert!(facts.is_untrusted() && !facts.is_forwarded());
        }
    }
    let moved = json!({"text": null, "location": place, "edit_date": 2});
    let update = json!({"update_id": 901, "edited_message": message(moved)});
    assert_eq!(line(rules().judge(Update::read(&update).unwrap())), "(says nothing)", "a live location moves");
    assert_eq!(line(judge(&rules(), message(json!({"text": null, "dice": 5})))), "(no text, dice of album None)");
}

#[test]
fn quotes_code_and_dates_of_a_text_are_markdown() {
    let said = |text: &str, part: &str, entity: Value| {
        let mut marked = super::entity("", text, part);
        marked.as_object_mut().unwrap().extend(entity.as_object().unwrap().clone());
        line(judge(&rules(), message(json!({"text": text, "entities": [marked]}))))
    };
    for (text, part, entity, expected) in [
        ("🗝 no\nwhy?", "no", json!({"type": "blockquote"}), "🗝 \n> no\n\nwhy?"),
        ("a\nb", "a\nb", json!({"type": "expandable_blockquote"}), "> a\n> b"),
        ("fn a() {}", "fn a() {}", json!({"type": "pre", "language": "rust"}), "```rust\nfn a() {}\n```"),
        ("run ls now", "ls", json!({"type": "code"}), "run `ls` now"),
        ("/stop", "/stop", json!({"type": "code"}), "/stop"),
        (
            "tomorrow at noon",
            "tomorrow",
            json!({"type": "date_time", "unix_time": 60}),
            "tomorrow (1970-01-01T00:01:00.000Z) at noon",
        ),
        ("tomorrow", "tomorrow", json!({"type": "date_time", "unix_time": "x"}), "tomorrow"),
        ("so bold", "bold", json!({"type": "bold"}), "so bold"),
    ] {
        assert_eq!(said(text, part, entity.clone()), expected, "{entity}");
    }
    let text = "@belay_bot what is\nx = 1";
    let marks = json!([entity("mention", text, "@belay_bot"), entity("pre", text, "x = 1")]);
    assert_eq!(line(judge(&rules(), group(json!({"text": text, "entities": marks})))), "what is\n```\nx = 1\n```");
}

#[test]
fn each_topic_of_a_direct_messages_chat_is_a_conversation() {
    let rules = Rules { people: people(in_groups(GroupAnswer::All)), ..rules() };
    for (fields, session, to) in [
        (json!({"direct_messages_topic": {"topic_id": 7}}), "telegram:-100:d7", "-100:d7"),
        (
            json!({"direct_messages_topic": {"topic_id": 8_000_000_000_i64}}),
            "telegram:-100:d8000000000",
            "-100:d8000000000",
        ),
        (json!({"direct_messages_topic": {}}), "telegram:-100", "-100"),
        (json!({"message_thread_id": 7, "is_topic_message": true}), "telegram:-100:7", "-100:7"),
    ] {
        let known = inbound(&rules, group(fields));
        assert_eq!((known.session.as_str(), &*known.reply_to.unwrap().conversation), (session, to));
    }
}

#[test]
fn who_writes_in_the_name_of_a_group_is_told_how_to_be_recognised() {
    let anonymous =
        json!({"id": 1_087_968_824, "is_bot": true, "first_name": "Group", "username": "GroupAnonymousBot"});
    let text = "@belay_bot hi";
    let sent = |more: Value| {
        let mut fields = json!({
            "from": anonymous, "sender_chat": {"id": -100, "type": "supergroup", "title": "G"},
            "text": text, "entities": [entity("mention", text, "@belay_bot")],
        });
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        group(fields)
    };
    let news = json!({"id": -7, "type": "channel", "title": "News"});
    for (more, expected) in [
        (json!({}), "(anonymous, 5 in -100)"),
        (json!({"message_thread_id": 9, "is_topic_message": true}), "(anonymous, 5 in -100:9)"),
        (json!({"sender_chat": news}), "(anonymous, 5 in -100)"),
        (json!({"sender_chat": 5}), "(anonymous, 5 in -100)"),
        (json!({"sender_chat": news, "is_automatic_forward": true}), "(not from a person)"),
        (json!({"entities": []}), "(not from a person)"),
        (json!({"chat": {"id": -200, "type": "supergroup"}}), "(not from a person)"),
    ] {
        assert_eq!(line(judge(&rules(), sent(more.clone()))), expected, "{more}");
    }
}

#[test]
fn a_message_of_an_unknown_kind_is_named_to_its_person_in_private() {
    let kind = json!({"text": null, "hologram_call": {"length": 3}});
    let worded = json!({"hologram_call": {"length": 3}});
    for (sent, expected) in [
        (message(kind.clone()), "(no text, hologram call of album None)"),
        (message(worded), "hello"),
        (message(json!({"text": null, "hologram": 5, "is_hologram": true})), "(says nothing)"),
        (message(json!({"text": null, "chat_background_set": {"type": {"type": "hologram"}}})), "(says nothing)"),
        (group(kind), "(does not address the bot)"),
    ] {
        assert_eq!(line(judge(&rules(), sent.clone())), expected, "{sent}");
    }
    let all = Rules { people: people(in_groups(GroupAnswer::All)), ..rules() };
    assert_eq!(line(judge(&all, group(json!({"text": null, "hologram_opened": {}})))), "(says nothing)");
}
