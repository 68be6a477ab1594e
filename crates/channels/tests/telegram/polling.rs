use std::time::Duration;

use belay_channels::{TelegramConfig, TelegramMode};
use belay_protocol::{Ack, Body, Channel, Envelope, Refusal};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::double::{Double, Trouble, refusal};
use crate::{accept, config, next, other_chat, telegram, update};

pub(crate) fn polling(double: &Double) -> TelegramConfig {
    TelegramConfig { mode: TelegramMode::Polling, ..config(&double.base) }
}

pub(crate) fn text(envelope: &Envelope) -> String {
    match &envelope.inbound.body {
        Body::Text(text) | Body::Edit(text) => text.clone(),
        Body::Control(control) => panic!("{control:?}"),
    }
}

fn offsets(double: &Double) -> Vec<Value> {
    double.calls("getUpdates").iter().map(|call| call["offset"].clone()).collect()
}

#[tokio::test]
async fn a_batch_is_confirmed_only_after_all_of_it_is_committed() {
    let double = Double::start().await;
    double.add_update(update(10, "one"));
    double.add_update(other_chat(11, "two"));
    double.add_update(update(12, "/status"));
    let channel = telegram(polling(&double));
    assert!(channel.router().is_none());
    let mut stream = channel.start(CancellationToken::new()).await.unwrap();
    let mut envelopes = Vec::new();
    for words in ["one", "two", "/status"] {
        envelopes.push(next(&mut stream).await);
        assert_eq!(text(envelopes.last().unwrap()), words);
    }
    let last = envelopes.pop().unwrap();
    for envelope in envelopes {
        accept(envelope.ack);
    }
    assert!(timeout(Duration::from_millis(50), stream.next()).await.is_err());
    assert_eq!(offsets(&double), [Value::Null], "one message is not committed");
    accept(last.ack);
    double.add_update(update(20, "four")); // comes with the call that confirms the first batch, or after it
    let four = next(&mut stream).await;
    assert_eq!(text(&four), "four");
    assert_eq!(offsets(&double)[..2], [Value::Null, json!(13)]);
    assert_eq!(double.calls("deleteWebhook").len(), 1);
    assert_eq!(
        double.calls("getUpdates")[0],
        json!({"timeout": 25, "allowed_updates": ["message", "edited_message", "callback_query", "my_chat_member"]})
    );
}

#[tokio::test]
async fn a_broken_update_and_a_strangers_are_skipped_and_confirmed() {
    let double = Double::start().await;
    double.add_update(json!({"update_id": 30, "message": {"message_id": "not a number"}}));
    let mut stranger = update(31, "let me in");
    stranger["message"]["from"]["id"] = json!(43);
    double.add_update(stranger);
    double.add_update(update(32, "fine"));
    double.add_update(json!({"update_id": 33, "brand_new": true}));
    let channel = telegram(polling(&double));
    let mut stream = channel.start(CancellationToken::new()).await.unwrap();
    let envelope = next(&mut stream).await;
    assert_eq!(text(&envelope), "fine");
    accept(envelope.ack);
    double.add_update(update(40, "next"));
    assert_eq!(text(&next(&mut stream).await), "next");
    assert_eq!(offsets(&double)[1], 34);
}

#[tokio::test]
async fn a_message_that_is_not_accepted_yet_is_offered_again_under_its_key() {
    let double = Double::start().await;
    double.add_update(update(50, "patience"));
    let channel = telegram(polling(&double));
    let mut stream = channel.start(CancellationToken::new()).await.unwrap();
    let first = next(&mut stream).await;
    let key = first.inbound.key.clone();
    first.ack.send(Ack::Refused(Refusal::Busy { what: "queue".into(), retry_after: Duration::from_millis(20) }));
    let second = next(&mut stream).await;
    assert_eq!((text(&second), second.inbound.key.clone()), ("patience".into(), key));
    assert_eq!(offsets(&double).len(), 1);
}

#[tokio::test]
async fn errors_of_the_server_are_waited_out() {
    let double = Double::start().await;
    double.trouble("deleteWebhook", refusal(500, "Internal Server Error"));
    double.trouble("getUpdates", refusal(502, "Bad Gateway"));
    double.trouble("getUpdates", Trouble::BreakOff);
    double.add_update(update(60, "through"));
    let channel = telegram(polling(&double));
    let mut stream = channel.start(CancellationToken::new()).await.unwrap();
    // Real pauses of one to four seconds each.
    let envelope = timeout(Duration::from_secs(300), stream.next()).await.expect("in time").unwrap();
    assert_eq!(text(&envelope), "through");
    assert_eq!(offsets(&double), [Value::Null, Value::Null, Value::Null]);
}

#[tokio::test]
async fn the_end_of_intake_ends_the_stream_in_the_middle_of_a_poll() {
    let double = Double::start().await;
    let channel = telegram(polling(&double));
    let intake = CancellationToken::new();
    let mut stream = channel.start(intake.clone()).await.unwrap();
    let (end, ()) = tokio::join!(stream.next(), async {
        double.wait_for("getUpdates", 1).await;
        intake.cancel();
    });
    assert!(end.is_none());
}

#[tokio::test]
async fn what_is_settled_at_the_end_of_intake_is_confirmed_and_nothing_else() {
    for (settled, left) in [(&[70, 71, 72][..], &[][..]), (&[70, 72], &[71, 72]), (&[], &[70, 71, 72])] {
        let double = Double::start().await;
        for number in [70, 71, 72] {
            double.add_update(update(number, "/status"));
        }
        let channel = telegram(polling(&double));
        let intake = CancellationToken::new();
        let mut stream = channel.start(intake.clone()).await.unwrap();
        let mut unanswered = Vec::new();
        for number in [70, 71, 72] {
            let ack = next(&mut stream).await.ack;
            if settled.contains(&number) { accept(ack) } else { unanswered.push(ack) }
        }
        intake.cancel();
        assert!(stream.next().await.is_none());
        assert_eq!(double.unconfirmed(), left, "{settled:?}");
    }
}

#[tokio::test]
async fn an_end_without_anything_to_confirm_asks_nothing() {
    let double = Double::start().await;
    double.add_update(update(80, "/status"));
    let channel = telegram(polling(&double));
    let intake = CancellationToken::new();
    let mut stream = channel.start(intake.clone()).await.unwrap();
    let envelope = next(&mut stream).await;
    intake.cancel();
    assert!(stream.next().await.is_none());
    assert_eq!(double.calls("getUpdates").len(), 1);
    drop(envelope);
}

#[tokio::test]
async fn a_telegram_that_does_not_answer_does_not_hold_up_the_end() {
    let double = Double::start().await;
    double.add_update(update(90, "/status"));
    let channel = telegram(polling(&double));
    let intake = CancellationToken::new();
    let mut stream = channel.start(intake.clone()).await.unwrap();
    accept(next(&mut stream).await.ack);
    double.trouble("getUpdates", Trouble::Silence);
    intake.cancel();
    let end = timeout(Duration::from_secs(300), stream.next()).await.expect("it ends in time"); // a poll lasts longer
    assert!(end.is_none());
}

#[tokio::test]
async fn a_stop_is_heard_while_an_earlier_message_is_unsettled() {
    let double = Double::start().await;
    double.add_update(update(100, "held"));
    double.add_update(other_chat(101, "settled"));
    let channel = telegram(polling(&double));
    let mut stream = channel.start(CancellationToken::new()).await.unwrap();
    let held = next(&mut stream).await;
    accept(next(&mut stream).await.ack);
    double.add_update(other_chat(102, "/stop all"));
    let stop = timeout(Duration::from_secs(300), stream.next()).await.expect("it is heard").unwrap();
    assert_eq!(text(&stop), "/stop all");
    accept(stop.ack);
    // Asked for again, nothing is offered again or confirmed.
    let asked_again = async {
        while double.calls("getUpdates").len() < 3 {
            assert!(timeout(Duration::from_millis(100), stream.next()).await.is_err());
        }
    };
    timeout(Duration::from_secs(300), asked_again).await.expect("it asks again");
    let asked = double.calls("getUpdates");
    assert!(asked[1..].iter().all(|call| call["offset"] == 100 && call["timeout"] == 1), "{asked:?}");
    assert_eq!(double.unconfirmed(), [100, 101, 102]);

    accept(held.ack);
    double.add_update(update(110, "next"));
    assert_eq!(text(&next(&mut stream).await), "next");
    assert_eq!(offsets(&double).last(), Some(&json!(103)));
    assert_eq!(double.unconfirmed(), [110]);
}

#[tokio::test]
async fn no_more_is_asked_for_behind_a_hundred_updates_of_which_the_first_is_unsettled() {
    let double = Double::start().await;
    double.add_update(other_chat(200, "/status"));
    double.add_update(other_chat(201, "/status"));
    for number in 202..302 {
        double.add_update(update(number, &number.to_string()));
    }
    let channel = telegram(polling(&double));
    let mut stream = channel.start(CancellationToken::new()).await.unwrap();
    let first = next(&mut stream).await;
    let second = next(&mut stream).await;
    for _ in 202..300 {
        accept(next(&mut stream).await.ack);
    }
    assert!(timeout(Duration::from_millis(1500), stream.next()).await.is_err());
    assert_eq!(offsets(&double), [Value::Null]);
    accept(first.ack);
    let last = next(&mut stream).await;
    assert_eq!(text(&last), "300");
    accept(last.ack);
    assert_eq!(offsets(&double), [Value::Null, json!(201)]);
    accept(second.ack);
    assert_eq!(text(&next(&mut stream).await), "301");
}

#[tokio::test]
async fn a_message_that_a_full_conversation_never_takes_is_given_up_and_the_person_is_told() {
    let double = Double::start().await;
    double.add_update(update(120, "one too many"));
    let channel = telegram(polling(&double));
    let intake = CancellationToken::new();
    let mut stream = channel.start(intake.clone()).await.unwrap();
    double.add_update(update(121, "two too many"));
    let busy = || Ack::Refused(Refusal::Busy { what: "queue".into(), retry_after: Duration::from_millis(20) });
    next(&mut stream).await.ack.send(busy());
    let again = next(&mut stream).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    again.ack.send(busy());
    let second = next(&mut stream).await;
    assert_eq!(text(&second), "two too many");
    second.ack.send(busy()); // given up at once: the conversation has been full for long
    let (again, sent) = tokio::join!(stream.next(), async {
        let sent = double.wait_for("sendMessage", 2).await;
        let polls = double.calls("getUpdates").len();
        double.wait_for("getUpdates", polls + 1).await; // a further offer would come before it
        intake.cancel();
        sent
    });
    assert!(again.is_none(), "it is not offered again");
    let told =
        "Too many messages are waiting in this conversation; this one was not taken. Please send it again later.";
    assert_eq!((&sent[0]["chat_id"], &sent[0]["text"]), (&json!(42), &json!(told)));
    assert!(double.unconfirmed().is_empty());
}

#[tokio::test]
async fn an_old_backlog_is_confirmed_unanswered_and_each_conversation_is_told_once() {
    let double = Double::start().await;
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    for number in 1..=30 {
        let mut old = update(number, "are you there?");
        old["message"]["date"] = json!(now - 2 * 86_400);
        double.add_update(old);
    }
    let mut new = update(31, "good morning");
    new["message"]["date"] = json!(now);
    double.add_update(new);
    let channel = telegram(TelegramConfig { max_age_s: 86_400, ..polling(&double) });
    let intake = CancellationToken::new();
    let mut stream = channel.start(intake.clone()).await.unwrap();
    let envelope = next(&mut stream).await;
    assert_eq!(text(&envelope), "good morning");
    accept(envelope.ack);
    let told = double.calls("sendMessage");
    assert_eq!((told.len(), &told[0]["chat_id"]), (1, &json!(42)), "{told:?}");
    assert!(told[0]["text"].as_str().unwrap().contains("too old"), "{told:?}");
    intake.cancel();
    assert!(stream.next().await.is_none());
    assert_eq!(double.unconfirmed(), [0_i64; 0], "none of it comes again");
}
