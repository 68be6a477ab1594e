//! Questions with buttons, and taps on them.

use std::time::Duration;

use belay_protocol::principal::Role;
use belay_protocol::{
    Ack, ApprovalId, Body, Channel, CommandReply, Control, Decision, Envelope, Principal, Question, Refusal, RunId,
};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::deliver::reply;
use crate::double::{Double, refusal};
use crate::polling::polling;
use crate::webhook::serve;
use crate::{config, next, tap, telegram};

/// Who answers which question, and how.
fn answer_of(envelope: &Envelope) -> (Principal, ApprovalId, Decision) {
    let Body::Control(Control::Decide { approval, decision }) = envelope.inbound.body else {
        panic!("{:?}", envelope.inbound.body)
    };
    assert_eq!(envelope.inbound.session.as_str(), "telegram:42");
    (envelope.inbound.principal.clone(), approval, decision)
}

fn decided(words: &str) -> Ack {
    Ack::Command(CommandReply {
        command: "/approve".into(),
        reply: words.into(),
        resumes: Some(RunId::new()),
        refused: false,
    })
}

fn toast(update: u64, text: &str) -> Value {
    json!({"callback_query_id": format!("query-{update}"), "text": text})
}

fn alert(update: u64, text: &str) -> Value {
    json!({"callback_query_id": format!("query-{update}"), "text": text, "show_alert": true})
}

#[tokio::test]
async fn a_question_has_its_buttons_under_the_last_piece() {
    let double = Double::start().await;
    let channel = telegram(config(&double.base));
    let approval = ApprovalId::new();
    let long = format!("{}\n\nMay I?", "a".repeat(4092));
    let question = |offers_always, decidable| {
        let mut message = reply(&long);
        message.question = Some(Question { approval, offers_always, decidable });
        message
    };
    for message in [question(true, true), question(false, true), question(false, false)] {
        channel.deliver(&message).await.unwrap();
    }
    let buttons: Vec<String> = double
        .calls("sendMessage")
        .iter()
        .map(|call| {
            let rows = call["reply_markup"]["inline_keyboard"].as_array().cloned().unwrap_or_default();
            let data = rows.iter().filter_map(Value::as_array).flatten().map(|button| button["callback_data"].clone());
            data.map(|data| data.as_str().unwrap_or_default().replace(&approval.to_string(), "G"))
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    assert_eq!(buttons, ["", "belay:a:G belay:y:G belay:d:G", "", "belay:a:G belay:d:G", "", ""]);
}

#[tokio::test]
async fn a_tap_decides_and_a_second_one_is_told_what_the_first_one_did() {
    let mut served = serve().await;
    let approval = ApprovalId::new();
    let first = served.post_update(&tap(1, 42, &format!("belay:a:{approval}")));
    let envelope = next(&mut served.stream).await;
    assert_eq!(answer_of(&envelope), (Principal { id: "42".into(), role: Role::User }, approval, Decision::Approve));
    assert_eq!(envelope.inbound.reply_to, None, "the tap itself is answered");
    envelope.ack.send(decided("**Approved.** The run continues."));
    assert_eq!(first.await.unwrap(), 200);
    let second = served.post_update(&tap(2, 42, &format!("belay:d:{approval}")));
    let envelope = next(&mut served.stream).await;
    assert_eq!(answer_of(&envelope).2, Decision::Deny);
    envelope.ack.send(Ack::Refused(Refusal::Decided("This was approved before.".into())));
    assert_eq!(second.await.unwrap(), 200);
    let told = served.double.calls("answerCallbackQuery");
    assert_eq!(told, [toast(1, "Approved. The run continues."), alert(2, "This was approved before.")]);
    let without_buttons = json!({"chat_id": 42, "message_id": 77});
    assert_eq!(served.double.calls("editMessageReplyMarkup"), [without_buttons.clone(), without_buttons]);
}

#[tokio::test]
async fn who_may_not_decide_is_told_so_and_the_buttons_stay_for_those_who_may() {
    let mut served = serve().await;
    let approval = ApprovalId::new();
    // On no list: the agent is not even asked.
    assert_eq!(served.post_update(&tap(1, 43, &format!("belay:a:{approval}"))).await.unwrap(), 200);
    assert!(served.is_silent().await);
    // On the list, but somebody else's question.
    let foreign = served.post_update(&tap(2, 7, &format!("belay:a:{approval}")));
    let envelope = next(&mut served.stream).await;
    assert_eq!(answer_of(&envelope).0, Principal::operator("7"));
    envelope.ack.send(Ack::Refused(Refusal::Forbidden("This question is somebody else's.".into())));
    assert_eq!(foreign.await.unwrap(), 200);
    let told = served.double.calls("answerCallbackQuery");
    let expected = [alert(1, "This question is not yours to answer."), alert(2, "This question is somebody else's.")];
    assert_eq!(told, expected);
    assert_eq!(served.double.calls("editMessageReplyMarkup"), Vec::<Value>::new());
}

#[tokio::test]
async fn a_tap_on_a_question_whose_time_is_up_is_told_so_and_takes_the_buttons_away() {
    let mut served = serve().await;
    let posted = served.post_update(&tap(1, 42, &format!("belay:y:{}", ApprovalId::new())));
    let envelope = next(&mut served.stream).await;
    assert_eq!(answer_of(&envelope).2, Decision::Always);
    envelope.ack.send(Ack::Refused(Refusal::Decided("This has expired: nobody answered in time.".into())));
    assert_eq!(posted.await.unwrap(), 200);
    assert_eq!(served.double.calls("answerCallbackQuery"), [alert(1, "This has expired: nobody answered in time.")]);
    assert_eq!(served.double.calls("editMessageReplyMarkup").len(), 1);
}

#[tokio::test]
async fn a_tap_that_cannot_be_taken_now_comes_again_and_is_answered_then() {
    let mut served = serve().await;
    let update = tap(1, 42, &format!("belay:a:{}", ApprovalId::new()));
    let posted = served.post_update(&update);
    next(&mut served.stream).await.ack.send(Ack::Refused(Refusal::ShuttingDown));
    assert_eq!(posted.await.unwrap(), 503);
    assert_eq!(served.double.calls("answerCallbackQuery"), Vec::<Value>::new());
    let again = served.post_update(&update);
    next(&mut served.stream).await.ack.send(decided("Approved."));
    assert_eq!(again.await.unwrap(), 200);
    assert_eq!(served.double.calls("answerCallbackQuery"), [toast(1, "Approved.")]);
}

#[tokio::test]
async fn telegram_failing_to_take_the_answer_of_a_tap_changes_nothing_about_the_decision() {
    let mut served = serve().await;
    served.double.trouble("answerCallbackQuery", refusal(400, "Bad Request: query is too old"));
    served.double.trouble("editMessageReplyMarkup", refusal(400, "Bad Request: message to edit not found"));
    let posted = served.post_update(&tap(1, 42, &format!("belay:a:{}", ApprovalId::new())));
    next(&mut served.stream).await.ack.send(decided("Approved."));
    assert_eq!(posted.await.unwrap(), 200);
    assert_eq!(served.double.calls("editMessageReplyMarkup").len(), 1);
}

#[tokio::test]
async fn taps_are_heard_by_polling_too_and_confirmed_after_they_are_answered() {
    let double = Double::start().await;
    let approval = ApprovalId::new();
    double.add_update(tap(10, 42, &format!("belay:d:{approval}")));
    double.add_update(tap(11, 42, "a button of another time"));
    let channel = telegram(polling(&double));
    let mut stream = channel.start(CancellationToken::new()).await.unwrap();
    let envelope = next(&mut stream).await;
    assert_eq!((answer_of(&envelope).1, answer_of(&envelope).2), (approval, Decision::Deny));
    envelope.ack.send(decided("Denied."));
    let confirmed = async {
        while !double.unconfirmed().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        done = tokio::time::timeout(Duration::from_secs(300), confirmed) => done.expect("confirmed in time"),
        other = stream.next() => panic!("{:?}", other.map(|envelope| envelope.inbound.body)), // drives the channel
    }
    let mut told = double.calls("answerCallbackQuery");
    told.sort_by_key(Value::to_string);
    assert_eq!(told, [toast(10, "Denied."), alert(11, "This button is out of use. Write /approve or /deny instead.")]);
}
