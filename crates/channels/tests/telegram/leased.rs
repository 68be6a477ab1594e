//! The polling of two nodes of a cluster, over one bot.

use std::sync::Arc;
use std::time::Duration;

use belay_channels::LeasedChannel;
use belay_protocol::{BootId, Channel, Envelope, HeldLeases, InboundStream, LeaseBook, LeasedWork, WorkLease};
use futures_util::StreamExt;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::double::{Double, refusal};
use crate::polling::polling;
use crate::{accept, next, telegram, update};

/// A node with the bot, which does not poll yet.
struct Node {
    boot: BootId,
    book: LeaseBook,
    stream: InboundStream,
    intake: CancellationToken,
}

impl Node {
    async fn start(double: &Double) -> Self {
        let (leases, book) = HeldLeases::new();
        let channel = LeasedChannel::new(Arc::new(telegram(polling(double)).under_lease()), leases);
        let intake = CancellationToken::new();
        let stream = channel.start(intake.clone()).await.unwrap();
        Self { boot: BootId::new(), book, stream, intake }
    }

    fn lease(&self, epoch: u64) -> WorkLease {
        WorkLease { work: LeasedWork::Channel("telegram".into()), owner: self.boot, epoch }
    }

    fn obtain(&self, epoch: u64) {
        self.book.held.send_replace(vec![self.lease(epoch)]);
    }

    fn lose(&self) {
        self.book.held.send_replace(Vec::new());
    }

    /// Runs its intake for a moment, in which no message may come.
    async fn is_silent(&mut self) {
        assert!(timeout(Duration::from_millis(300), self.stream.next()).await.is_err());
    }
}

/// The number of the message, as the store knows it.
fn key(envelope: &Envelope) -> String {
    let key = envelope.inbound.key.as_ref().expect("each update has a key");
    key.message_id.trim_start_matches("update:").to_owned()
}

#[tokio::test]
async fn each_update_is_accepted_once_while_the_lease_moves() {
    let double = Double::start().await;
    let (mut a, mut b) = (Node::start(&double).await, Node::start(&double).await);
    a.is_silent().await;
    assert!(double.calls("getMe").is_empty() && double.calls("deleteWebhook").is_empty(), "nothing before the lease");

    let mut accepted = Vec::new();
    a.obtain(1);
    for number in [10, 11] {
        double.add_update(update(number, "hi"));
        let envelope = next(&mut a.stream).await;
        accepted.push(key(&envelope));
        accept(envelope.ack);
    }
    // The last one is accepted and not confirmed yet, and another one is not accepted.
    double.add_update(update(12, "hi"));
    double.add_update(update(13, "hi"));
    let last = next(&mut a.stream).await;
    accepted.push(key(&last));
    accept(last.ack);
    let unanswered = next(&mut a.stream).await;
    a.lose();
    a.is_silent().await;
    let asked = double.calls("getUpdates").len();
    a.is_silent().await;
    assert_eq!(double.calls("getUpdates").len(), asked, "no call after the loss, not even to confirm");
    drop(unanswered);
    assert_eq!(double.unconfirmed(), [12, 13]);

    b.obtain(2);
    let again = next(&mut b.stream).await;
    assert!(accepted.contains(&key(&again)), "the store recognises it");
    accept(again.ack);
    double.add_update(update(14, "hi"));
    for _ in 0..2 {
        let envelope = next(&mut b.stream).await;
        assert!(!accepted.contains(&key(&envelope)), "{accepted:?}");
        accepted.push(key(&envelope));
        accept(envelope.ack);
    }
    assert_eq!(accepted, ["10", "11", "12", "13", "14"]);
    assert_eq!(double.calls("deleteWebhook").len(), 2, "each poller removes a webhook once");

    // Back again: the first node starts a second time.
    b.intake.cancel();
    assert!(b.stream.next().await.is_none());
    assert!(double.unconfirmed().is_empty(), "the end of intake confirms under the lease");
    b.lose();
    a.obtain(3);
    double.add_update(update(15, "hi"));
    let envelope = next(&mut a.stream).await;
    assert_eq!(key(&envelope), "15");
    accept(envelope.ack);
}

#[tokio::test]
async fn a_conflict_gives_the_lease_up_for_a_while() {
    let double = Double::start().await;
    let mut node = Node::start(&double).await;
    for epoch in [1, 2] {
        double.trouble("getUpdates", refusal(409, "Conflict: terminated by other getUpdates request"));
        node.obtain(epoch);
        let (lease, stream) = (node.lease(epoch), &mut node.stream);
        tokio::select! {
            message = stream.next() => panic!("{:?}", message.map(|message| key(&message))),
            given_up = node.book.requests.recv() => assert_eq!(given_up, Some(lease)),
        }
        let asked = double.calls("getUpdates").len();
        node.is_silent().await;
        assert_eq!(double.calls("getUpdates").len(), asked, "it does not ask until it has another lease");
        node.lose();
        node.is_silent().await;
    }
    double.add_update(update(20, "hi"));
    node.obtain(3);
    assert_eq!(key(&next(&mut node.stream).await), "20");
}

#[tokio::test]
async fn a_wrong_token_leaves_the_channel_to_others() {
    let double = Double::start().await;
    let mut node = Node::start(&double).await;
    double.trouble("getMe", refusal(401, "Unauthorized"));
    node.obtain(1);
    let lease = node.lease(1);
    tokio::select! {
        message = node.stream.next() => panic!("{:?}", message.map(|message| key(&message))),
        given_up = node.book.requests.recv() => assert_eq!(given_up, Some(lease)),
    }
    node.intake.cancel();
    assert!(node.stream.next().await.is_none());
}

#[tokio::test]
async fn without_the_keeper_of_the_leases_nothing_is_taken() {
    let double = Double::start().await;
    let Node { book, mut stream, intake, boot, .. } = Node::start(&double).await;
    let lease = WorkLease { work: LeasedWork::Channel("telegram".into()), owner: boot, epoch: 1 };
    book.held.send_replace(vec![lease]);
    double.add_update(update(30, "hi"));
    accept(next(&mut stream).await.ack);
    drop(book);
    assert!(timeout(Duration::from_millis(300), stream.next()).await.is_err());
    let asked = double.calls("getUpdates").len();
    double.add_update(update(31, "hi"));
    assert!(timeout(Duration::from_millis(300), stream.next()).await.is_err());
    assert_eq!(double.calls("getUpdates").len(), asked);
    intake.cancel();
    assert!(stream.next().await.is_none());
}
