//! Events of several clients.

use serde_json::{Value, json};

use super::*;

fn me() -> Me {
    Me { user: "@belay:s".into(), name: "Belay".into() }
}

fn event(content: Value) -> Event {
    Event::of(json!({ "type": "m.room.message", "sender": "@ann:s", "event_id": "$1", "content": content }))
        .expect("an event")
}

const COMMANDS: [CommandInfo; 1] =
    [CommandInfo { name: "stop", description: "", operators_only: false, in_groups: true }];

#[test]
fn a_text_loses_what_is_not_the_persons() {
    let quote = json!({ "m.in_reply_to": { "event_id": "$0" } });
    let replaced = json!({ "rel_type": "m.replace", "event_id": "$0" });
    for (content, expected) in [
        (json!({ "body": " hello\u{202e} " }), "hello"),
        (json!({ "body": "Belay: hello" }), "hello"),
        (json!({ "body": "@belay:s, hello" }), "hello"),
        (json!({ "body": "@Belay hello" }), "hello"),
        (json!({ "body": "Belays are many" }), "Belays are many"),
        (json!({ "body": "!stop now" }), "/stop now"),
        (json!({ "body": "Belay: !STOP" }), "/STOP"),
        (json!({ "body": "!important" }), "!important"),
        (json!({ "body": "> <@eve:s> old\n> words\n\nyes", "m.relates_to": quote }), "yes"),
        (json!({ "body": "> my own words" }), "> my own words"),
        (json!({ "body": "* new", "m.new_content": { "body": "new" }, "m.relates_to": replaced }), "new"),
        (json!({ "body": "* new", "m.new_content": { "body": "new" } }), "* new"),
        (json!({ "body": "cat.png", "msgtype": "m.image", "url": "mxc://s/a" }), ""),
        (json!({ "body": "cat.png", "filename": "cat.png", "msgtype": "m.image", "url": "mxc://s/a" }), ""),
        (json!({ "body": "who?", "filename": "cat.png", "msgtype": "m.image", "url": "mxc://s/a" }), "who?"),
        (json!({ "body": ["x"], "m.relates_to": 3, "m.new_content": 4 }), ""),
        (json!(null), ""),
    ] {
        assert_eq!(text(&event(content.clone()), &me(), &COMMANDS), expected, "{content}");
    }
}

#[test]
fn a_message_addresses_by_its_mentions_or_by_its_words() {
    for (content, expected) in [
        (json!({ "body": "hi", "m.mentions": { "user_ids": ["@ann:s", "@belay:s"] } }), true),
        (json!({ "body": "Belay: hi", "m.mentions": {} }), false),
        (json!({ "body": "Belay: hi", "m.mentions": { "room": true } }), false),
        (json!({ "body": "Belay: hi", "m.mentions": 3 }), false),
        (json!({ "body": "what says belay?" }), true),
        (json!({ "body": "outbelayed" }), false),
        (json!({ "body": "x", "formatted_body": "<a href=\"https://matrix.to/#/@belay:s\">x</a>" }), true),
    ] {
        assert_eq!(addresses(&event(content.clone()), &me()), expected, "{content}");
    }
}

#[test]
fn programs_files_and_reactions_are_recognised() {
    assert!(is_a_programs(&event(json!({ "msgtype": "m.notice", "body": "x" }))));
    assert!(is_a_programs(&event(json!({ "msgtype": "m.text", MARK: {} }))));
    assert!(!is_a_programs(&event(json!({ "msgtype": "m.text" }))));
    for (url, is_file) in [
        ("mxc://s:80/aB_-", true),
        ("mxc://s/a/b", false),
        ("mxc://s/..", false),
        ("https://s/a", false),
        ("mxc:///a", false),
    ] {
        let found = file(&event(json!({ "msgtype": "m.file", "url": url, "body": "x" })));
        assert_eq!(found.is_some(), is_file, "{url}");
    }
    for (key, expected) in [
        ("✅", Some(Decision::Approve)),
        ("♾️", Some(Decision::Always)),
        ("❌\u{fe0f}", Some(Decision::Deny)),
        ("🎉", None),
    ] {
        assert_eq!(decision(key), expected, "{key}");
    }
}
