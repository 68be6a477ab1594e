//! Updates with values that are newer than this version, or of another type than the Bot API says. Whatever is around
//! it, the text of a listed person arrives.

use belay_protocol::Body;
use futures_util::StreamExt;
use serde_json::{Map, Value, json};

use crate::webhook::{Served, serve};
use crate::{accept, update};

/// Stands for a half of a surrogate pair, which `Value` cannot have.
const LONE: &str = "@@lone@@";
/// Stands for a number that no `f64` has.
const HUGE: &str = "@@huge@@";

/// The replied-to message of each row of a table, with these fields.
fn reply(fields: Value) -> Value {
    let mut reply = json!({
        "message_id": 4, "date": 1, "from": {"id": 778, "is_bot": true, "first_name": "News"},
        "chat": {"id": 42, "type": "private"},
    });
    merge(reply.as_object_mut().unwrap(), &fields);
    json!({ "reply_to_message": reply })
}

fn merge(into: &mut Map<String, Value>, fields: &Value) {
    for (name, value) in fields.as_object().unwrap() {
        into.insert(name.clone(), value.clone());
    }
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!("deep"), |inner, _| json!({"type": "bold", "text": inner}))
}

/// What is wrong in a message that the text replies to.
fn odd_replies() -> Vec<Value> {
    let markup = |button: Value| json!({"reply_markup": {"inline_keyboard": [[button]]}});
    [
        json!({"rich_message": {"blocks": [{"type": "hologram", "text": "x"}]}}),
        json!({"rich_message": {"blocks": [{"type": "paragraph", "text": {"type": "wavy", "text": "x"}}]}}),
        json!({"rich_message": {"blocks": "x"}}),
        json!({"rich_message": 5}),
        json!({"rich_message": {"blocks": [{"type": "paragraph", "text": nested(200)}]}}),
        json!({"poll": {"id": "1", "question": "q", "options": [], "type": "ranked"}}),
        json!({"poll": {"id": 1, "question": 2, "options": "x", "type": 3}}),
        json!({"sticker": {"file_id": "f", "type": "hologram", "format": "webx"}}),
        json!({"paid_media": {"star_count": 1, "paid_media": [{"type": "hologram"}]}}),
        json!({"chat_background_set": {"type": {"type": "hologram"}}}),
        json!({"forward_origin": {"type": "hologram", "date": 1}}),
        json!({"forward_origin": "x"}),
        json!({"suggested_post_info": {"state": "hovering"}}),
        json!({"unique_gift": {"gift": 5, "origin": "hologram"}}),
        json!({"gift": {"gift": {"id": 5, "sticker": "x"}}}),
        markup(json!({"text": "Go", "style": "hologram", "url": "https://a.example"})),
        markup(json!({"style": 5})),
        json!({"reply_markup": ["x"]}),
        json!({"chat": null}),
        json!({"chat": {"id": "x", "type": "hologram"}}),
        json!({"date": "today"}),
        json!({"message_id": "x"}),
        json!({"from": {"id": 5}}),
        json!({"from": "News"}),
        json!({"text": "x", "entities": [{"type": "hologram", "offset": "a", "length": -1}, null, 5]}),
        json!({"giveaway": {"chats": 5}, "giveaway_winners": "x", "giveaway_completed": []}),
        json!({"checklist": {"title": 5, "tasks": [{"id": "x"}, 7]}}),
        json!({"story": {"id": "x"}}),
        json!({"pinned_message": {"date": "x"}}),
        json!({"video_chat_started": 5, "forum_topic_edited": "x"}),
        json!({"text": LONE}),
        json!({"location": {"latitude": HUGE, "longitude": "x"}}),
    ]
    .into_iter()
    .map(reply)
    .chain([json!({"reply_to_message": 5}), json!({"reply_to_message": ["x"]})])
    .collect()
}

/// What is wrong beside the text, in the message itself.
fn odd_fields() -> Vec<Value> {
    let entities = |entities: Value| json!({ "entities": entities });
    vec![
        json!({"forward_origin": {"type": "hologram", "date": 1}}),
        json!({"forward_origin": {"type": "user", "date": "x", "sender_user": 5}}),
        json!({"external_reply": {"origin": {"type": "hologram"}}}),
        json!({"external_reply": {"sticker": {"type": "hologram"}, "poll": {"type": "ranked"}}}),
        json!({"external_reply": 5}),
        json!({"suggested_post_info": {"state": "hovering", "price": "much"}}),
        json!({"quote": {"text": 5, "position": "x"}}),
        json!({"quote": "x"}),
        json!({"reply_to_story": {"chat": 5}}),
        json!({"reply_to_checklist_task_id": "x", "reply_to_poll_option_id": 5}),
        entities(json!([{"type": "hologram", "offset": 0, "length": 3}])),
        entities(json!([{"type": 5, "offset": 0, "length": 3}])),
        entities(json!([{"type": "bold", "offset": "x", "length": 3}])),
        entities(json!([{"type": "pre", "offset": -1, "length": 3}])),
        entities(json!([{"type": "blockquote", "offset": 0, "length": 70_000}])),
        entities(json!({"type": "bold"})),
        entities(json!([null, 5, "x"])),
        entities(json!([{"type": "text_mention", "offset": 0, "length": 3}])),
        entities(json!([{"type": "text_link", "offset": 0, "length": 3, "url": 5}])),
        entities(json!([{"type": "date_time", "offset": 0, "length": 3, "unix_time": "soon"}])),
        json!({"reply_markup": {"inline_keyboard": [[{"text": "Go", "style": "hologram"}]]}}),
        json!({"link_preview_options": "off"}),
        json!({"effect_id": 5}),
        json!({"via_bot": {"id": "x"}}),
        json!({"via_bot": 5}),
        json!({"sender_business_bot": "x"}),
        json!({"from": {"id": 42}}),
        json!({"from": {"id": "42", "is_bot": "no", "first_name": 5, "language_code": []}}),
        json!({"from": {"id": 42, "is_bot": false, "first_name": LONE}}),
        json!({"chat": {"id": 42, "type": "hologram"}}),
        json!({"chat": {"id": 42, "type": 5, "first_name": {}}}),
        json!({"chat": {"id": "42"}}),
        json!({"message_id": "x"}),
        json!({"message_id": 9_000_000_000_000_i64}),
        json!({"message_id": null}),
        json!({"date": "today"}),
        json!({"date": null}),
        json!({"date": -1}),
        json!({"date": 1.5}),
        json!({"date": HUGE}),
        json!({"message_thread_id": "x", "is_topic_message": 5}),
        json!({"direct_messages_topic": {"topic_id": "x"}}),
        json!({"media_group_id": 5}),
        json!({"sender_boost_count": "x", "sender_tag": 5, "author_signature": []}),
        json!({"has_protected_content": "x", "is_paid_post": 1, "paid_star_count": "x"}),
        json!({"business_connection_id": 5, "guest_query_id": 5, "guest_bot_caller_user": "x"}),
        json!({"receiver_user": 5}),
        json!({"rich_message": {"blocks": [{"type": "hologram"}]}}),
        json!({"checklist": {"tasks": 5}, "poll": {"type": "ranked"}, "dice": 5}),
        json!({"gift": 5, "unique_gift": {"origin": "hologram"}, "gift_upgrade_sent": []}),
        json!({"location": "here", "venue": 5, "contact": [], "game": 1, "invoice": "x"}),
        json!({"reactions": [{"type": "hologram"}], "passport_data": 5, "web_app_data": "x"}),
        json!({"users_shared": 5, "community_chat_added": "x", "managed_bot_created": []}),
        json!({"new_chat_members": 5, "left_chat_member": "x"}),
        json!({"hologram": nested(300)}),
        json!({"text": ["so ", {"type": "bold", "text": "yes"}]}),
        json!({"text": {"type": "wavy", "text": "yes"}}),
    ]
}

/// What is wrong with the media of a caption.
fn odd_media() -> Vec<Value> {
    let media = [
        json!({"photo": [{"file_id": "f", "width": "wide", "height": -1, "file_size": "x"}]}),
        json!({"photo": {"file_id": "f"}}),
        json!({"photo": [null, 5]}),
        json!({"video": {"file_id": 5, "duration": "x", "qualities": "x"}}),
        json!({"document": {"file_id": "f", "file_size": "large", "file_name": 5}}),
        json!({"document": "x"}),
        json!({"animation": ["x"]}),
        json!({"audio": {"thumbnail": 5}}),
        json!({"voice": 5}),
        json!({"paid_media": {"paid_media": [{"type": "hologram"}]}}),
        json!({"live_photo": {"photo": 5}}),
        json!({"story": 5}),
        json!({"photo": [], "caption_entities": [{"type": "hologram", "offset": 0}]}),
        json!({"photo": [], "caption_entities": "x"}),
        json!({"photo": [], "text": ""}),
        json!({"photo": [], "text": {"hologram": 5}}),
    ];
    let captioned = |mut media: Value| {
        let fields = media.as_object_mut().unwrap();
        fields.entry("text").or_insert(Value::Null);
        merge(fields, &json!({"caption": "yes"}));
        media
    };
    media.into_iter().map(captioned).collect()
}

fn body(update: &Value) -> String {
    update.to_string().replace(LONE, "\\ud83d").replace(&format!("\"{HUGE}\""), "1e999")
}

/// The text that arrives; `None`: the update is acknowledged, and nothing arrives.
async fn arrives(served: &mut Served, update: &Value) -> Option<String> {
    let mut status = served.post(body(update));
    let envelope = tokio::select! {
        biased;
        envelope = served.stream.next() => envelope.unwrap(),
        status = &mut status => {
            assert_eq!(status.unwrap(), 200, "{update}");
            return None;
        }
    };
    let text = match &envelope.inbound.body {
        Body::Text(text) | Body::Edit(text) => text.clone(),
        Body::Control(control) => panic!("{control:?}"),
    };
    accept(envelope.ack);
    assert_eq!(status.await.unwrap(), 200, "{update}");
    Some(text)
}

#[tokio::test]
async fn no_unknown_value_and_no_wrong_type_costs_the_text_of_a_person() {
    let mut served = serve().await;
    let rows: Vec<Value> = [odd_replies(), odd_fields(), odd_media()].concat();
    assert!(rows.len() >= 100, "{}", rows.len());
    let mut lost = Vec::new();
    for (number, row) in (1..).zip(&rows) {
        let mut update = update(number, "yes");
        merge(update["message"].as_object_mut().unwrap(), row);
        if arrives(&mut served, &update).await.is_none_or(|text| !text.contains("yes")) {
            lost.push(row.to_string());
        }
    }
    assert!(lost.is_empty(), "{} of {} are lost:\n{}", lost.len(), rows.len(), lost.join("\n"));
}

/// Updates around a message of the served group whose text mentions the bot, with what is odd in it.
fn odd_in_a_group() -> Vec<Value> {
    let mention = json!([{"type": "mention", "offset": 0, "length": 10}, {"type": "hologram", "offset": "x"}, null]);
    let mut rows = [
        odd_replies(),
        vec![
            json!({"chat": {"id": -100, "type": "hologram"}}),
            json!({"chat": {"id": -100, "title": 5}}),
            json!({"message_thread_id": "x", "is_topic_message": true}),
            json!({"direct_messages_topic": 5}),
            json!({"message_id": "x"}),
            json!({"sender_boost_count": [], "sender_tag": {}}),
        ],
    ]
    .concat();
    for row in &mut rows {
        let fields = row.as_object_mut().unwrap();
        fields.entry("chat").or_insert(json!({"id": -100, "type": "supergroup", "title": "G"}));
        merge(fields, &json!({"text": "@belay_bot yes", "entities": mention}));
    }
    rows
}

#[tokio::test]
async fn a_mention_in_a_group_is_heard_whatever_is_odd_around_it() {
    let mut served = serve().await;
    for (number, row) in (1..).zip(odd_in_a_group()) {
        let mut update = update(number, "");
        merge(update["message"].as_object_mut().unwrap(), &row);
        assert_eq!(arrives(&mut served, &update).await.as_deref(), Some("yes"), "{row}");
    }
}

#[tokio::test]
async fn odd_updates_of_every_requested_kind_are_handled() {
    let mut served = serve().await;
    // Numbers as texts, fields of another kind, and half a character.
    let mut numbered = update(1, "yes");
    numbered["update_id"] = json!("1");
    numbered["hologram"] = json!(5);
    let mut half = update(2, "");
    half["message"]["text"] = json!(format!("yes {LONE}"));
    let mut edited = update(3, "yes");
    edited["message"]["edit_date"] = json!("2");
    edited["message"]["reply_markup"] = json!([5]);
    edited["edited_message"] = edited["message"].take();
    edited.as_object_mut().unwrap().remove("message");
    let mut undated = edited.clone();
    undated["update_id"] = json!(6);
    undated["edited_message"]["edit_date"] = json!("today");
    for update in [numbered, half, edited, undated] {
        let text = arrives(&mut served, &update).await.unwrap_or_default();
        assert!(text.starts_with("yes"), "{text:?} from {update}");
    }
    let mut tapped = crate::tap(4, 42, &format!("belay:a:{}", belay_protocol::ApprovalId::new()));
    tapped["callback_query"]["message"]["reply_markup"] = json!({"inline_keyboard": [[{"style": "hologram"}]]});
    tapped["callback_query"]["message"]["reply_to_message"] = json!({"poll": {"type": "ranked"}});
    let status = served.post(body(&tapped));
    let envelope = crate::next(&mut served.stream).await;
    assert!(matches!(envelope.inbound.body, Body::Control(_)));
    accept(envelope.ack);
    assert_eq!(status.await.unwrap(), 200);
    // An administrator as an older server describes it: without the newer rights.
    let bot = json!({"id": 777, "is_bot": true, "first_name": "B"});
    let added = json!({"update_id": 5, "my_chat_member": {
        "chat": {"id": -100, "type": "supergroup", "title": "G"}, "date": 1, "from": {"id": 42},
        "old_chat_member": {"status": "left", "user": bot}, "new_chat_member": {"status": "administrator", "user": bot},
    }});
    assert_eq!(served.post(body(&added)).await.unwrap(), 200);
    assert_eq!(served.double.calls("sendMessage").len(), 1, "the greeting");
}

#[tokio::test]
async fn a_listed_person_is_told_of_a_message_that_cannot_be_read_and_nobody_else_is() {
    let mut served = serve().await;
    let odd = |number: u64, fields: Value| {
        let mut update = update(number, "yes");
        merge(update["message"].as_object_mut().unwrap(), &fields);
        update
    };
    let stranger = json!({"id": 43, "is_bot": false, "first_name": "S"});
    for (update, told) in [
        (odd(1, json!({"from": "x"})), 1),
        (odd(2, json!({"text": {"hologram": 5}})), 2),
        (odd(3, json!({"from": "x", "chat": {"id": 43, "type": "private"}})), 2),
        (odd(4, json!({"text": {"hologram": 5}, "from": stranger})), 2),
        (odd(5, json!({"chat": "x"})), 2),
        (json!({"update_id": 6, "message": 5}), 2),
        (json!({"update_id": 7, "message": {"from": {"id": 42}, "text": "yes"}}), 2),
    ] {
        assert_eq!(served.post(body(&update)).await.unwrap(), 200, "{update}");
        assert_eq!(served.double.calls("sendMessage").len(), told, "{update}");
    }
    assert!(served.is_silent().await);
    let said = &served.double.calls("sendMessage")[0];
    let text = said["text"].as_str().unwrap();
    assert!(text.starts_with("I could not read this message") && said["chat_id"] == 42, "{said}");
}
