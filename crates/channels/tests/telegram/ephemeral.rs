//! Ephemeral messages: what one person of a group and the bot see alone is answered so, or not at all.

use std::sync::Arc;

use belay_protocol::{
    Ack, ApprovalId, Channel, ChannelDisplay, DeliverError, Envelope, Inbound, Outbound, OutboundFile, Question,
    Refusal, Streaming,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::blobs::OneBlob;
use crate::deliver::{reply, route};
use crate::double::{Double, refusal};
use crate::webhook::{Served, serve_channel};
use crate::{accept, config, next, telegram};

const CONVERSATION: &str = "-100:e42";

/// An ephemeral message of user 42 in the group, with these fields.
fn ephemeral(update_id: u64, fields: Value) -> Value {
    let mut message = json!({
        "message_id": 0, "ephemeral_message_id": 12, "date": 1, "from": {"id": 42, "is_bot": false, "first_name": "A"},
        "receiver_user": {"id": 777, "is_bot": true, "first_name": "B"},
        "chat": {"id": -100, "type": "supergroup", "title": "G"},
    });
    message.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"update_id": update_id, "message": message})
}

async fn served() -> Served {
    let double = Double::start().await;
    let channel = telegram(config(&double.base)).with_files(Arc::new(OneBlob(b"hello")));
    serve_channel(double, channel).await
}

async fn hears(served: &mut Served, update: &Value) -> Inbound {
    let status = served.post_update(update);
    let Envelope { inbound, ack } = next(&mut served.stream).await;
    accept(ack);
    assert_eq!(status.await.unwrap(), 200);
    inbound
}

/// The receiver and the answered message of all messages. Fails if one of them is for the group.
fn answers(double: &Double) -> Vec<Value> {
    let calls = [double.calls("sendMessage"), double.calls("sendDocument")].concat();
    let answer = |call: &Value| {
        assert_eq!(call["ephemeral_message_parameters"]["receiver_user_id"], 42, "for all to see: {call}");
        call["reply_parameters"].clone()
    };
    calls.iter().map(answer).collect()
}

#[tokio::test]
async fn an_ephemeral_message_has_a_conversation_of_its_own_and_an_ephemeral_answer() {
    let mut served = served().await;
    let entities = json!([{"type": "bot_command", "offset": 0, "length": 17}]);
    let update = ephemeral(1, json!({"text": "/status@belay_bot", "entities": entities}));
    let inbound = hears(&mut served, &update).await;
    assert_eq!(inbound.body, belay_protocol::Body::Text("/status".into()));
    assert_eq!(inbound.session.to_string(), "telegram:-100:e42");
    assert!(!served.channel.admission().unwrap().is_group(&inbound.session), "one person reads it");
    let to = inbound.reply_to.unwrap();
    assert_eq!((&*to.conversation, to.reply_to.as_deref()), (CONVERSATION, Some("12")));
    served.channel.deliver(&Outbound { route: to, ..reply("fine") }).await.unwrap();
    let sent = &served.double.calls("sendMessage")[0];
    assert_eq!((&sent["chat_id"], &sent["message_thread_id"]), (&json!(-100), &json!(null)));
    assert_eq!(answers(&served.double), [json!({"ephemeral_message_id": 12})]);
    // In a topic of a forum, and without a number.
    let update = ephemeral(2, json!({"text": "hi", "message_thread_id": 9, "is_topic_message": true}));
    let to = hears(&mut served, &update).await.reply_to.unwrap();
    assert_eq!(&*to.conversation, "-100:e42:9");
    served.channel.deliver(&Outbound { route: to, ..reply("fine") }).await.unwrap();
    assert_eq!(served.double.calls("sendMessage")[1]["message_thread_id"], 9);
    let update = ephemeral(3, json!({"text": "hi", "ephemeral_message_id": null}));
    let to = hears(&mut served, &update).await.reply_to.unwrap();
    assert_eq!((&*to.conversation, to.reply_to.as_deref()), (CONVERSATION, None));
}

#[tokio::test]
async fn nothing_that_belongs_to_an_ephemeral_conversation_is_shown_to_the_group() {
    let served = served().await;
    let to = route(CONVERSATION, Some("12"));
    // Typing and previews.
    let ChannelDisplay { streaming, indicator } = served.channel.display();
    indicator.expect("typing").working(&to, CancellationToken::new()).await; // ends at once
    let Streaming::Preview(preview) = streaming else { panic!("previews") };
    let begun = preview.begin(&to, "half an answer").await;
    assert!(matches!(begun, Err(DeliverError::Refused { .. })), "{begun:?}");
    for method in ["sendChatAction", "sendMessage"] {
        assert_eq!(served.double.calls(method), Vec::<Value>::new(), "{method}");
    }
    // Questions with buttons, files, long texts, notices of jobs, and what is delivered after a restart.
    let question = Question { approval: ApprovalId::new(), offers_always: true, decidable: true };
    let file = OutboundFile {
        name: "a.txt".into(),
        media_type: "text/plain".into(),
        bytes: 5,
        digest: "0".repeat(64).parse().unwrap(),
        path: String::new(),
    };
    let long = format!("{}\n\n{}", "a".repeat(4000), "b".repeat(4000));
    for message in [
        Outbound { route: to.clone(), question: Some(question), ..reply("May I?") },
        Outbound { route: to.clone(), file: Some(file), ..reply("a caption") },
        Outbound { route: to.clone(), ..reply(&long) },
        Outbound { route: route(CONVERSATION, None), ..reply("the job is done") },
        Outbound { route: to, pieces_sent: 1, ..reply(&long) },
    ] {
        served.channel.deliver(&message).await.unwrap();
    }
    assert_eq!(answers(&served.double).len(), 6);
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_tried_as_a_message_of_an_administrator_and_never_public() {
    for refusals in [1, 2] {
        let served = served().await;
        for _ in 0..refusals {
            served.double.trouble("sendMessage", refusal(400, "Bad Request: EPHEMERAL_TOO_LATE"));
        }
        let message = Outbound { route: route(CONVERSATION, Some("12")), ..reply("late") };
        let sent = served.channel.deliver(&message).await;
        assert_eq!(answers(&served.double), [json!({"ephemeral_message_id": 12}), json!(null)]);
        match refusals {
            1 => sent.unwrap(),
            _ => {
                let Err(DeliverError::Refused { detail }) = sent else { panic!("{sent:?}") };
                assert!(detail.contains("ephemeral messages of 42") && detail.contains("15 seconds"), "{detail}");
            }
        }
    }
}

#[tokio::test]
async fn notices_about_an_ephemeral_message_are_ephemeral() {
    let mut served = served().await;
    // Nothing that can be read; and a conversation that is full.
    let video = json!({"video": {"file_id": "f", "file_unique_id": "u", "duration": 1, "width": 1, "height": 1}});
    assert_eq!(served.post_update(&ephemeral(1, video)).await.unwrap(), 200);
    let status = served.post_update(&ephemeral(2, json!({"text": "hi"})));
    let retry_after = std::time::Duration::from_secs(1);
    let busy = Ack::Refused(Refusal::Busy { what: "full".into(), retry_after });
    next(&mut served.stream).await.ack.send(busy);
    status.await.unwrap();
    let notices = answers(&served.double);
    assert!(!notices.is_empty(), "a notice about the video");
    assert!(notices.iter().all(|reply| reply["ephemeral_message_id"] == 12), "{notices:?}");
}

#[tokio::test]
async fn a_stranger_who_writes_ephemerally_gets_nothing() {
    let mut served = served().await;
    let stranger = json!({"text": "hi", "from": {"id": 43, "is_bot": false, "first_name": "X"}});
    let elsewhere = json!({"text": "hi", "chat": {"id": -200, "type": "supergroup", "title": "H"}});
    let nobody = json!({"text": "hi", "sender_chat": {"id": -100, "type": "supergroup", "title": "G"}});
    for (number, fields) in [(1, stranger), (2, elsewhere), (3, nobody)] {
        assert_eq!(served.post_update(&ephemeral(number, fields)).await.unwrap(), 200);
    }
    assert!(served.is_silent().await);
    assert_eq!(served.double.calls("sendMessage"), Vec::<Value>::new());
}

#[tokio::test]
async fn a_button_of_an_ephemeral_question_answers_in_its_conversation() {
    let mut served = served().await;
    let mut tap = crate::tap(1, 42, &format!("belay:a:{}", ApprovalId::new()));
    let message = ephemeral(0, json!({"text": "May I?", "from": {"id": 777, "is_bot": true, "first_name": "B"}}));
    tap["callback_query"]["message"] = message["message"].clone();
    let status = served.post_update(&tap);
    let Envelope { inbound, ack } = next(&mut served.stream).await;
    assert_eq!(inbound.session.to_string(), "telegram:-100:e42");
    ack.send(Ack::Refused(Refusal::Decided("It was denied before.".into())));
    assert_eq!(status.await.unwrap(), 200);
    assert_eq!(served.double.calls("answerCallbackQuery").len(), 1, "shown to this person alone");
    assert_eq!(served.double.calls("editMessageReplyMarkup"), Vec::<Value>::new(), "it has no message_id");
}

#[tokio::test]
async fn an_edit_of_an_ephemeral_message_is_one_in_its_conversation() {
    let mut served = served().await;
    let message = ephemeral(1, json!({"text": "better", "edit_date": 2}));
    let inbound = hears(&mut served, &json!({"update_id": 1, "edited_message": message["message"]})).await;
    assert_eq!(inbound.body, belay_protocol::Body::Edit("better".into()));
    assert_eq!(inbound.session.to_string(), "telegram:-100:e42");
    assert_eq!(inbound.provenance.unwrap().message_id.as_deref(), Some("12"));
}
