//! Deleted topics, and other refusals that a second attempt or the operator can mend.

use std::sync::Arc;

use belay_protocol::{Channel, DeliverError, Outbound, OutboundFile, WorkIndicator};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::blobs::OneBlob;
use crate::deliver::{reply, route};
use crate::double::{Double, refusal};
use crate::{config, telegram};

/// The topic and the answered message of each call.
fn places(double: &Double, method: &str) -> Vec<Value> {
    let calls = double.calls(method);
    calls.iter().map(|call| json!([call["message_thread_id"], call["reply_parameters"]["message_id"]])).collect()
}

fn file() -> OutboundFile {
    OutboundFile {
        name: "a.txt".into(),
        media_type: "text/plain".into(),
        bytes: 5,
        digest: "0".repeat(64).parse().unwrap(),
        path: String::new(),
    }
}

#[tokio::test]
async fn in_private_a_reply_to_a_deleted_topic_is_sent_once_without_it() {
    for description in ["message thread not found", "TOPIC_DELETED", "TOPIC_CLOSED"] {
        let double = Double::start().await;
        double.trouble("sendMessage", refusal(400, &format!("Bad Request: {description}")));
        let long = format!("{}\n\n{}", "a".repeat(4000), "b".repeat(4000));
        let message = Outbound { route: route("42:33", None), ..reply(&long) };
        telegram(config(&double.base)).deliver(&message).await.unwrap();
        let expected = [json!([33, null]), json!([null, null]), json!([null, null])];
        assert_eq!(places(&double, "sendMessage"), expected, "{description}");
    }
}

#[tokio::test]
async fn in_a_forum_a_reply_to_a_deleted_topic_goes_nowhere_and_the_operator_reads_why() {
    for description in ["message thread not found", "TOPIC_DELETED", "TOPIC_CLOSED"] {
        let double = Double::start().await;
        double.trouble("sendMessage", refusal(400, &format!("Bad Request: {description}")));
        let message = Outbound { route: route("-100:33", Some("5")), ..reply("hi") };
        let channel = telegram(config(&double.base));
        assert_eq!(channel.health().trouble, None);
        let failed = channel.deliver(&message).await;
        let Err(DeliverError::Refused { detail }) = failed else { panic!("{failed:?}") };
        assert!(detail.starts_with("topic 33 of the group -100: the topic"), "{detail}");
        assert_eq!(channel.health().trouble, Some(format!("an answer was not delivered: {detail}")));
        assert!(detail.contains(description), "{detail}");
        assert_eq!(places(&double, "sendMessage"), [json!([33, 5])], "{description}");
    }
}

#[tokio::test]
async fn a_reply_whose_question_is_gone_answers_nothing() {
    for description in ["message to be replied not found", "message to reply not found", "REPLY_MESSAGE_ID_INVALID"] {
        let double = Double::start().await;
        double.trouble("sendMessage", refusal(400, &format!("Bad Request: {description}")));
        let message = Outbound { route: route("-100:33", Some("5")), ..reply("hi") };
        telegram(config(&double.base)).deliver(&message).await.unwrap();
        assert_eq!(places(&double, "sendMessage"), [json!([33, 5]), json!([33, null])], "{description}");
    }
}

#[tokio::test]
async fn a_file_follows_the_same_rules_as_a_text() {
    let double = Double::start().await;
    let channel = telegram(config(&double.base)).with_files(Arc::new(OneBlob(b"hello")));
    let message = |conversation: &str| Outbound {
        file: Some(file()),
        route: route(conversation, conversation.starts_with('-').then_some("5")),
        ..reply("a caption")
    };
    double.trouble("sendDocument", refusal(400, "Bad Request: message thread not found"));
    channel.deliver(&message("42:33")).await.unwrap();
    double.trouble("sendDocument", refusal(400, "Bad Request: TOPIC_DELETED"));
    let failed = channel.deliver(&message("-100:33")).await;
    assert!(matches!(&failed, Err(DeliverError::Refused { detail }) if detail.contains("deleted")), "{failed:?}");
    double.trouble("sendDocument", refusal(400, "Bad Request: message to be replied not found"));
    channel.deliver(&message("-100:33")).await.unwrap();
    let topics: Vec<_> = double.calls("sendDocument").iter().map(|call| call["message_thread_id"].clone()).collect();
    assert_eq!(topics, [json!("33"), json!(null), json!("33"), json!("33"), json!("33")]);
    assert_eq!(double.calls("sendDocument")[4]["reply_parameters"], json!(null));
}

#[tokio::test]
async fn a_preview_in_a_deleted_private_topic_becomes_an_answer_without_the_topic() {
    let double = Double::start().await;
    double.trouble("editMessageText", refusal(400, "Bad Request: message to edit not found"));
    double.trouble("sendMessage", refusal(400, "Bad Request: message thread not found"));
    let message = Outbound { route: route("42:33", None), preview: Some("99".into()), ..reply("hi") };
    telegram(config(&double.base)).deliver(&message).await.unwrap();
    assert_eq!(places(&double, "sendMessage"), [json!([33, null]), json!([null, null])]);
}

#[tokio::test]
async fn what_only_a_person_can_mend_ends_the_delivery_and_names_the_remedy() {
    for (code, description, remedy) in [
        (400, "Bad Request: chat not found", "add it again"),
        (403, "Forbidden: bot was blocked by the user", "must start it again"),
        (403, "Forbidden: user is deactivated", "account of the person was deleted"),
        (403, "Forbidden: bot was kicked from the supergroup chat", "add it again"),
        (403, "Forbidden: bot is not a member of the supergroup chat", "add it again"),
        (400, "Bad Request: not enough rights to send text messages to the chat", "right to send messages"),
        (400, "Bad Request: have no rights to send a message", "right to send messages"),
        (400, "Bad Request: CHAT_WRITE_FORBIDDEN", "right to send messages"),
    ] {
        let double = Double::start().await;
        double.trouble("sendMessage", refusal(code, description));
        let message = Outbound { route: route("-100", Some("5")), ..reply("hi") };
        let failed = telegram(config(&double.base)).deliver(&message).await;
        let Err(DeliverError::Refused { detail }) = failed else { panic!("{failed:?}") };
        assert!(detail.contains("group -100") && detail.contains(remedy) && detail.contains(description), "{detail}");
        assert_eq!(double.calls("sendMessage").len(), 1, "{description}");
    }
}

#[tokio::test]
async fn typing_in_a_deleted_topic_is_not_repeated() {
    let double = Double::start().await;
    double.trouble("sendChatAction", refusal(400, "Bad Request: message thread not found"));
    let channel = telegram(config(&double.base));
    channel.working(&route("-100:33", None), CancellationToken::new()).await; // ends by itself
    assert_eq!(double.calls("sendChatAction").len(), 1);
}

#[tokio::test]
async fn a_place_that_took_no_answer_is_in_the_status_until_it_takes_one() {
    let double = Double::start().await;
    let channel = telegram(config(&double.base));
    let to = |conversation: &str| Outbound { route: route(conversation, None), ..reply("hi") };
    for conversation in ["-100:33", "-200", "42"] {
        double.trouble("sendMessage", refusal(400, "Bad Request: not enough rights to send text messages to the chat"));
        channel.deliver(&to(conversation)).await.unwrap_err();
    }
    let line = channel.health().trouble.expect("two places");
    assert!(line.starts_with("answers for 2 places were not delivered, the last one: group -200: "), "{line}");
    channel.deliver(&to("-200")).await.unwrap();
    assert!(channel.health().trouble.expect("one place").starts_with("an answer was not delivered: topic 33 of"));
    channel.deliver(&to("-100:33")).await.unwrap();
    assert_eq!(channel.health().trouble, None);
}
