//! Answers that are shown while they come.

use std::sync::Arc;
use std::time::Duration;

use belay_channels::{Stream, Telegram, TelegramConfig};
use belay_protocol::{Channel, DeliverError, Outbound, Preview, ReplyRoute, Streaming};
use serde_json::{Value, json};

use crate::deliver::{reply, route};
use crate::double::{Double, Trouble, refusal};
use crate::{config, telegram};

fn preview(channel: &Telegram) -> &dyn Preview {
    match channel.display().streaming {
        Streaming::Preview(preview) => preview,
        Streaming::Off | Streaming::Blocks { .. } | Streaming::Live(_) => {
            panic!("telegram shows previews unless told otherwise")
        }
    }
}

async fn begin(channel: &Telegram, route: &ReplyRoute, text: &str) -> Arc<str> {
    preview(channel).begin(route, text).await.unwrap()
}

fn flood(seconds: u64) -> Trouble {
    let parameters = json!({"retry_after": seconds});
    let body = json!({"ok": false, "error_code": 429, "description": "Too Many Requests", "parameters": parameters});
    Trouble::Answer(429, body)
}

/// The answer that takes the place of message 99.
fn answer(text: &str) -> Outbound {
    Outbound { preview: Some("99".into()), ..reply(text) }
}

#[tokio::test]
async fn what_is_shown_is_what_the_settings_say() {
    let double = Double::start().await;
    for (stream, shown) in [(Stream::Off, "nothing"), (Stream::Preview, "preview"), (Stream::Blocks, "4096")] {
        let channel = telegram(TelegramConfig { stream, ..config(&double.base) });
        let seen = match channel.display().streaming {
            Streaming::Off | Streaming::Live(_) => "nothing".to_owned(),
            Streaming::Preview(_) => "preview".to_owned(),
            Streaming::Blocks { max_chars } => max_chars.to_string(),
        };
        assert_eq!(seen, shown);
    }
}

#[tokio::test]
async fn a_preview_is_one_message_that_is_edited_and_becomes_the_answer() {
    let double = Double::start().await;
    let channel = telegram(config(&double.base));
    let route = route("-100:9", Some("5"));
    let message = begin(&channel, &route, "It **is").await;
    assert_eq!(&*message, "99");
    preview(&channel).change(&route, &message, "It **is** no").await.unwrap();
    channel.deliver(&Outbound { route, ..answer("It **is** noon.") }).await.unwrap();
    let sent = double.calls("sendMessage");
    assert_eq!((sent.len(), &sent[0]["reply_parameters"]["message_id"]), (1, &json!(5)));
    assert_eq!(
        double.calls("editMessageText"),
        ["It <b>is</b> no", "It <b>is</b> noon."].map(|text| json!({
            "chat_id": -100, "message_id": 99, "text": text, "parse_mode": "HTML",
            "link_preview_options": {"is_disabled": true},
        }))
    );
}

#[tokio::test]
async fn a_long_answer_begins_in_the_preview_and_goes_on_in_new_messages() {
    let double = Double::start().await;
    let channel = telegram(config(&double.base));
    let long = format!("{}\n\n{}", "a".repeat(4000), "b".repeat(4000));
    let message = begin(&channel, &route("42", None), &long).await;
    assert_eq!(double.calls("sendMessage")[0]["text"], "a".repeat(4000), "a preview stops where a message does");
    channel.deliver(&Outbound { preview: Some(message), ..reply(&long) }).await.unwrap();
    let texts = |method| double.calls(method).iter().map(|call| call["text"].clone()).collect::<Vec<Value>>();
    assert_eq!(texts("editMessageText"), ["a".repeat(4000)]);
    assert_eq!(texts("sendMessage")[1..], ["b".repeat(4000)]);
}

#[tokio::test]
async fn what_a_message_says_already_is_said() {
    let double = Double::start().await;
    let channel = telegram(config(&double.base));
    let same = || refusal(400, "Bad Request: message is not modified: specified new message content is the same");
    double.trouble("editMessageText", same());
    double.trouble("editMessageText", same());
    preview(&channel).change(&route("42", None), "99", "noon").await.unwrap();
    channel.deliver(&answer("noon")).await.unwrap();
    assert!(double.calls("sendMessage").is_empty() && double.calls("deleteMessage").is_empty());
}

#[tokio::test]
async fn an_answer_that_cannot_take_the_place_of_its_preview_is_sent_and_the_preview_goes() {
    let double = Double::start().await;
    let channel = telegram(config(&double.base));
    double.trouble("editMessageText", refusal(400, "Bad Request: message to edit not found"));
    channel.deliver(&answer("noon")).await.unwrap();
    assert_eq!(double.calls("sendMessage")[0]["text"], "noon");
    assert_eq!(double.calls("deleteMessage"), [json!({"chat_id": 42, "message_id": 99})]);
    // Nothing that could be one: the same.
    channel.deliver(&Outbound { preview: Some("?".into()), ..reply("two") }).await.unwrap();
    assert_eq!(double.calls("sendMessage").len(), 2);
}

#[tokio::test]
async fn the_answer_in_the_place_of_a_preview_is_tried_again_whatever_became_of_it() {
    let double = Double::start().await;
    let channel = telegram(config(&double.base));
    for (trouble, waits) in [(flood(7), Some(7)), (Trouble::BreakOff, None), (Trouble::Answer(502, json!({})), None)] {
        double.trouble("editMessageText", trouble);
        let error = channel.deliver(&answer("noon")).await.unwrap_err();
        let DeliverError::Retry { after, pieces_sent: 0, .. } = error else { panic!("{error:?}") };
        assert_eq!(after, waits.map(Duration::from_secs));
    }
    channel.deliver(&answer("noon")).await.unwrap();
    assert!(double.calls("sendMessage").is_empty(), "an edit is never sent as a second message");
}

#[tokio::test]
async fn a_preview_obeys_a_rate_limit_and_is_shown_plain_where_its_html_is_not_read() {
    let double = Double::start().await;
    let channel = telegram(config(&double.base));
    double.trouble("sendMessage", flood(3));
    let error = preview(&channel).begin(&route("42", None), "text").await.unwrap_err();
    assert!(matches!(error, DeliverError::Retry { after: Some(after), .. } if after.as_secs() == 3), "{error:?}");
    double.trouble("editMessageText", refusal(400, "Bad Request: can't parse entities: x"));
    preview(&channel).change(&route("42", None), "99", "**bold**").await.unwrap();
    let edits = double.calls("editMessageText");
    assert_eq!((&edits[1]["text"], &edits[1]["parse_mode"]), (&json!("bold"), &Value::Null));
}

#[tokio::test]
async fn a_preview_without_an_answer_is_deleted() {
    let double = Double::start().await;
    let channel = telegram(config(&double.base));
    preview(&channel).discard(&route("42", None), "99").await;
    double.trouble("deleteMessage", refusal(400, "Bad Request: message can't be deleted"));
    preview(&channel).discard(&route("42", None), "98").await; // nobody hears of it
    assert_eq!(double.calls("deleteMessage").len(), 2);
}
