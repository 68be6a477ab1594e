//! Messages that come in.

use std::collections::HashSet;
use std::time::Duration;

use belay_protocol::{Ack, AckSender, Body, Envelope, IdempotencyKey, InboundStream, Refusal};
use futures_util::StreamExt;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Platform;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(300);

/// One start of a daemon that takes messages.
struct Intake {
    stream: InboundStream,
    stop: CancellationToken,
}

impl Intake {
    async fn start(platform: &dyn Platform) -> Self {
        let stop = CancellationToken::new();
        let stream = platform.channel().start(stop.clone()).await.expect("the channel starts");
        Self { stream, stop }
    }

    async fn next(&mut self) -> (IdempotencyKey, String, AckSender) {
        let next = timeout(PATIENCE, self.stream.next()).await.expect("a message in time");
        let Envelope { inbound, ack } = next.expect("the stream goes on");
        let Body::Text(text) = inbound.body else { panic!("no text: {:?}", inbound.body) };
        (inbound.key.expect("a key"), text, ack)
    }

    /// Accepts messages until one has a key that is not known, and returns its text.
    async fn accept_new(&mut self, known: &mut HashSet<IdempotencyKey>) -> String {
        loop {
            let (key, text, ack) = self.next().await;
            ack.send(accepted());
            if known.insert(key) {
                return text;
            }
        }
    }
}

/// An acknowledgement after which the platform need not deliver the message again.
fn accepted() -> Ack {
    Ack::Refused(Refusal::Forbidden("settled for good".into()))
}

/// # Panics
/// The channel does not pass.
pub async fn a_message_that_a_crash_left_unacknowledged_comes_again_under_its_key(platform: &dyn Platform) {
    platform.says("one").await;
    let mut first = Intake::start(platform).await;
    let (key, text, _unanswered) = first.next().await;
    assert_eq!(text, "one");
    drop(first);
    let mut second = Intake::start(platform).await;
    let (again, text, ack) = second.next().await;
    assert_eq!((again, text.as_str()), (key.clone(), "one"));
    ack.send(accepted());
    let mut known = HashSet::from([key]);
    platform.says("two").await;
    assert_eq!(second.accept_new(&mut known).await, "two");
    // A platform may repeat what was accepted; it has the same key then.
    drop(second);
    platform.says("three").await;
    assert_eq!(Intake::start(platform).await.accept_new(&mut known).await, "three");
}

/// # Panics
/// The channel does not pass.
pub async fn a_message_that_the_store_cannot_take_is_offered_again_and_those_behind_it_keep_their_order(
    platform: &dyn Platform,
) {
    for text in ["one", "two", "three"] {
        platform.says(text).await;
    }
    let mut intake = Intake::start(platform).await;
    let (refused, text, ack) = intake.next().await;
    assert_eq!(text, "one");
    ack.send(Ack::Refused(Refusal::Store("full".into())));
    let (mut known, mut texts) = (HashSet::new(), Vec::new());
    while !known.contains(&refused) || known.len() < 3 {
        texts.push(intake.accept_new(&mut known).await);
    }
    assert_eq!(texts, ["one", "two", "three"]);
}

/// # Panics
/// The channel does not pass.
pub async fn a_thousand_messages_after_an_outage_all_arrive_once_and_in_order(platform: &dyn Platform) {
    for number in 0..1000 {
        platform.says(&number.to_string()).await;
    }
    let (mut intake, mut known) = (Intake::start(platform).await, HashSet::new());
    for number in 0..1000 {
        assert_eq!(intake.accept_new(&mut known).await, number.to_string());
    }
    intake.stop.cancel();
    while let Some(late) = timeout(PATIENCE, intake.stream.next()).await.expect("the end of intake ends the stream") {
        assert!(late.inbound.key.is_some_and(|key| known.contains(&key)), "only a repetition");
    }
}
