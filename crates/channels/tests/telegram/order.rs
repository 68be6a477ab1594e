//! The order in which polling offers the messages of one conversation.

use std::time::Duration;

use belay_protocol::{Ack, Channel, CommandReply, Envelope, InboundStream, Refusal};
use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::double::Double;
use crate::polling::{polling, text};
use crate::{accept, confirmed, next, other_chat, telegram, update};

async fn expect(stream: &mut InboundStream, words: &str) -> Envelope {
    let envelope = next(stream).await;
    assert_eq!(text(&envelope), words);
    envelope
}

fn refuse(envelope: Envelope) {
    let refusal = Refusal::Overloaded { what: "runs".into(), retry_after: Duration::from_millis(20) };
    envelope.ack.send(Ack::Refused(refusal));
}

fn carried_out(envelope: Envelope) {
    let reply = CommandReply { command: "/x".into(), reply: "Done.".into(), resumes: None, refused: false };
    envelope.ack.send(Ack::Command(reply));
}

#[tokio::test]
async fn a_message_that_could_not_be_stored_is_not_overtaken_in_its_conversation() {
    let double = Double::start().await;
    let channel = telegram(polling(&double));
    let intake = CancellationToken::new();
    for of in [update(10, "one"), update(11, "two"), other_chat(12, "elsewhere"), update(13, "three")] {
        double.add_update(of);
    }
    let mut stream = channel.start(intake.clone()).await.unwrap();
    let one = expect(&mut stream, "one").await;
    accept(expect(&mut stream, "elsewhere").await.ack); // another conversation continues
    let key = one.inbound.key.clone();
    one.ack.send(Ack::Refused(Refusal::Store("the database is away".into())));
    let one = expect(&mut stream, "one").await;
    assert_eq!(one.inbound.key, key, "the store recognises it");
    drop(one); // the agent has not answered
    let one = expect(&mut stream, "one").await;
    assert_eq!(double.unconfirmed(), [10, 11, 12, 13]);
    accept(one.ack);
    refuse(expect(&mut stream, "two").await);
    accept(expect(&mut stream, "two").await.ack);
    accept(expect(&mut stream, "three").await.ack);
    intake.cancel();
    assert!(stream.next().await.is_none());
    assert!(double.unconfirmed().is_empty());
}

#[tokio::test]
async fn an_end_confirms_only_what_is_before_the_message_that_is_not_stored() {
    let double = Double::start().await;
    let channel = telegram(polling(&double));
    let intake = CancellationToken::new();
    for of in [other_chat(20, "stored"), update(21, "not stored"), update(22, "waits"), other_chat(23, "stored too")] {
        double.add_update(of);
    }
    let mut stream = channel.start(intake.clone()).await.unwrap();
    accept(expect(&mut stream, "stored").await.ack);
    refuse(expect(&mut stream, "not stored").await);
    accept(expect(&mut stream, "stored too").await.ack);
    let again = expect(&mut stream, "not stored").await;
    intake.cancel();
    assert!(stream.next().await.is_none());
    assert_eq!(double.unconfirmed(), [21, 22, 23]);
    drop(again);
}

#[tokio::test]
async fn a_stop_acts_at_once_and_again_behind_the_messages_that_were_not_stored_before_it() {
    let double = Double::start().await;
    let channel = telegram(polling(&double));
    let intake = CancellationToken::new();
    double.add_update(update(40, "one"));
    double.add_update(update(41, "two"));
    let mut stream = channel.start(intake.clone()).await.unwrap();
    refuse(expect(&mut stream, "one").await);
    let one = expect(&mut stream, "one").await;
    double.add_update(update(42, "/stop"));
    let stop = expect(&mut stream, "/stop").await;
    assert!(stop.inbound.key.is_none(), "the second one must not count as a redelivery");
    carried_out(stop);
    accept(one.ack);
    accept(expect(&mut stream, "two").await.ack);
    let stop = expect(&mut stream, "/stop").await;
    let key = stop.inbound.key.clone().unwrap();
    assert_eq!(&*key.message_id, "update:42");
    confirmed(&double, &mut stream, 42).await;
    assert_eq!(double.unconfirmed(), [42], "it has not acted on all of them yet");
    carried_out(stop);
    intake.cancel();
    assert!(stream.next().await.is_none());
    assert!(double.unconfirmed().is_empty());
}

#[tokio::test]
async fn a_stop_comes_behind_the_messages_that_wait() {
    let double = Double::start().await;
    let channel = telegram(polling(&double));
    for of in [update(50, "one"), update(51, "two"), update(52, "three"), update(53, "/stop"), update(54, "four")] {
        double.add_update(of);
    }
    let mut stream = channel.start(CancellationToken::new()).await.unwrap();
    let one = expect(&mut stream, "one").await;
    let two = expect(&mut stream, "two").await;
    let three = expect(&mut stream, "three").await;
    carried_out(expect(&mut stream, "/stop").await);
    refuse(two); // it waits for "one"
    accept(one.ack);
    accept(three.ack);
    accept(expect(&mut stream, "two").await.ack);
    accept(expect(&mut stream, "four").await.ack);
}
