use std::time::Duration;

use belay_protocol::{Channel, ChannelId, DeliverError, Outbound, OutboxId, ReplyRoute, RunId, WorkIndicator};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::double::{Double, Trouble, refusal};
use crate::{config, telegram};

pub(crate) fn route(conversation: &str, reply_to: Option<&str>) -> ReplyRoute {
    ReplyRoute {
        channel: ChannelId::new("telegram"),
        conversation: conversation.into(),
        reply_to: reply_to.map(Into::into),
    }
}

pub(crate) fn reply(text: &str) -> Outbound {
    Outbound {
        id: OutboxId::new(),
        run_id: Some(RunId::new()),
        route: route("42", None),
        text: text.into(),
        pieces_sent: 0,
        question: None,
        preview: None,
        callback: None,
        unchecked: None,
        file: None,
    }
}

fn texts(double: &Double) -> Vec<String> {
    double.calls("sendMessage").iter().map(|call| call["text"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_reply_is_sent_as_html_without_link_previews() {
    let double = Double::start().await;
    telegram(config(&double.base)).deliver(&reply("**1 < 2**")).await.unwrap();
    assert_eq!(
        double.calls("sendMessage"),
        [json!({
            "chat_id": 42, "text": "<b>1 &lt; 2</b>", "parse_mode": "HTML", "link_preview_options": {"is_disabled": true},
        })]
    );
}

#[tokio::test]
async fn in_a_topic_the_first_piece_answers_the_message_and_the_general_topic_is_not_named() {
    let double = Double::start().await;
    let channel = telegram(config(&double.base));
    let long = format!("{}\n\n{}", "a".repeat(4000), "b".repeat(4000));
    channel.deliver(&Outbound { route: route("-100:9", Some("5")), ..reply(&long) }).await.unwrap();
    channel.deliver(&Outbound { route: route("-100:1", Some("6")), ..reply("general") }).await.unwrap();
    let seen: Vec<Value> = double
        .calls("sendMessage")
        .iter()
        .map(|call| {
            json!([
                call["chat_id"],
                call["message_thread_id"],
                call["reply_parameters"],
                call["text"].as_str().unwrap().len()
            ])
        })
        .collect();
    let answers = |id: i32| json!({"message_id": id, "allow_sending_without_reply": true});
    assert_eq!(
        seen,
        [json!([-100, 9, answers(5), 4000]), json!([-100, 9, null, 4000]), json!([-100, null, answers(6), 7])]
    );
}

#[tokio::test]
async fn in_a_topic_of_a_direct_messages_chat_each_piece_names_the_topic() {
    let double = Double::start().await;
    let channel = telegram(config(&double.base));
    let long = format!("{}\n\n{}", "a".repeat(4000), "b".repeat(4000));
    channel.deliver(&Outbound { route: route("-100:d7", Some("5")), ..reply(&long) }).await.unwrap();
    let calls = double.calls("sendMessage");
    assert_eq!(calls.len(), 2);
    for call in calls {
        assert_eq!((&call["chat_id"], &call["direct_messages_topic_id"]), (&json!(-100), &json!(7)));
        assert_eq!(call.get("message_thread_id"), None);
    }
}

#[tokio::test]
async fn a_429_is_obeyed_to_the_second_and_the_delivery_goes_on_with_the_piece_it_stopped_at() {
    let double = Double::start().await;
    let channel = telegram(config(&double.base));
    let mut message = reply(&["a", "b", "c"].map(|letter| letter.repeat(3000)).join("\n\n"));
    channel.deliver(&Outbound { text: "warm".into(), ..message.clone() }).await.unwrap();
    let flood = json!({"ok": false, "error_code": 429, "description": "Too Many Requests: retry after 17", "parameters": {"retry_after": 17}});
    for trouble in [Trouble::Answer(200, json!({"ok": true, "result": {}})), Trouble::Answer(429, flood)] {
        double.trouble("sendMessage", trouble);
    }
    let failed = channel.deliver(&message).await;
    let Err(DeliverError::Retry { after, pieces_sent, .. }) = failed else { panic!("{failed:?}") };
    assert_eq!((after, pieces_sent), (Some(Duration::from_secs(17)), 1));
    message.pieces_sent = pieces_sent;
    channel.deliver(&message).await.unwrap();
    let first_letters: String = texts(&double).iter().map(|text| text.chars().next().unwrap()).collect();
    assert_eq!(first_letters, "wabbc");
}

#[tokio::test]
async fn html_that_telegram_cannot_read_is_sent_plain() {
    let double = Double::start().await;
    double.trouble("sendMessage", refusal(400, "Bad Request: can't parse entities: unsupported start tag"));
    telegram(config(&double.base)).deliver(&reply("**a** & `b`")).await.unwrap();
    let calls = double.calls("sendMessage");
    assert_eq!((calls[0]["parse_mode"].as_str(), calls[1]["parse_mode"].as_str()), (Some("HTML"), None));
    assert_eq!(texts(&double)[1], "a & b");
}

#[tokio::test]
async fn a_group_that_has_moved_is_followed() {
    let double = Double::start().await;
    let moved = json!({"ok": false, "error_code": 400, "description": "Bad Request: group chat was upgraded", "parameters": {"migrate_to_chat_id": -1007}});
    double.trouble("sendMessage", Trouble::Answer(400, moved));
    telegram(config(&double.base)).deliver(&reply("hi")).await.unwrap();
    let chats: Vec<_> = double.calls("sendMessage").iter().map(|call| call["chat_id"].clone()).collect();
    assert_eq!(chats, [42, -1007]);
}

#[tokio::test]
async fn each_trouble_says_whether_to_try_again() {
    let double = Double::start().await;
    let channel = telegram(config(&double.base));
    for (trouble, expected) in [
        (refusal(500, "Internal Server Error"), "retry"),
        (refusal(401, "Unauthorized"), "retry"),
        (refusal(403, "Forbidden: bot was blocked by the user"), "refused"),
        (refusal(400, "Bad Request: chat not found"), "refused"),
        (Trouble::BreakOff, "ambiguous"),
        (Trouble::Answer(200, json!("not the Bot API")), "ambiguous"),
    ] {
        double.trouble("sendMessage", trouble);
        let failed = channel.deliver(&reply("hi")).await;
        let seen = match &failed {
            Err(DeliverError::Retry { .. }) => "retry",
            Err(DeliverError::Ambiguous { .. }) => "ambiguous",
            Err(DeliverError::Refused { .. }) => "refused",
            Ok(()) => "sent",
        };
        assert_eq!(seen, expected, "{failed:?}");
    }
    assert_eq!(double.calls("sendMessage").len(), 6, "nothing was tried twice");
}

#[tokio::test]
async fn a_server_that_never_answers_makes_the_delivery_ambiguous_after_its_deadline() {
    let double = Double::start().await;
    double.trouble("sendMessage", Trouble::Silence);
    let channel = telegram(config(&double.base));
    let message = reply("hi");
    let (failed, ()) = tokio::join!(channel.deliver(&message), async {
        double.wait_for("sendMessage", 1).await;
        tokio::time::pause(); // the deadline is now the only thing that can happen, and the clock jumps to it
    });
    assert!(matches!(failed, Err(DeliverError::Ambiguous { pieces_sent: 0, .. })), "{failed:?}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_tried_again_and_the_error_does_not_tell_the_token() {
    let failed = telegram(config("http://127.0.0.1:1")).deliver(&reply("hi")).await;
    let Err(error @ DeliverError::Retry { after: None, .. }) = failed else { panic!("{failed:?}") };
    assert!(!format!("{error} {error:?}").contains("the-bots-token"), "{error:?}");
}

#[tokio::test]
async fn nothing_is_sent_for_an_empty_text_a_finished_delivery_or_a_foreign_conversation() {
    let double = Double::start().await;
    let channel = telegram(config(&double.base));
    channel.deliver(&reply(" \n ")).await.unwrap();
    channel.deliver(&Outbound { pieces_sent: 1, ..reply("done") }).await.unwrap();
    let foreign = channel.deliver(&Outbound { route: route("stdin", None), ..reply("hi") }).await;
    assert!(matches!(foreign, Err(DeliverError::Refused { .. })), "{foreign:?}");
    assert_eq!(double.calls("sendMessage"), Vec::<Value>::new());
}

#[tokio::test]
async fn typing_is_shown_until_the_run_ends() {
    let double = Double::start().await;
    let channel = telegram(config(&double.base));
    let run = CancellationToken::new();
    let place = route("-100:9", None);
    tokio::join!(channel.working(&place, run.clone()), async {
        let calls = double.wait_for("sendChatAction", 1).await;
        assert_eq!(calls, [json!({"chat_id": -100, "message_thread_id": 9, "action": "typing"})]);
        run.cancel();
    });
    double.trouble("sendChatAction", Trouble::Silence);
    let run = CancellationToken::new();
    tokio::join!(channel.working(&place, run.clone()), async {
        double.wait_for("sendChatAction", 2).await;
        run.cancel(); // while the call hangs: it is dropped
    });
}
