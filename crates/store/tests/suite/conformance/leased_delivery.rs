//! The outbox of several nodes: a channel's messages are sent by the holder of its lease.

use std::sync::Arc;

use belay_protocol::store::WorkLeases;
use belay_protocol::{
    BootId, EventKind, EventLog, EventQuery, LeasedWork, Outbound, Outbox, OutboxId, OutboxRow, OutboxState,
    ReplyRoute, StoreError, WorkLease,
};
use belay_store::SqlStore;

use super::for_every_store;
use crate::kit::{at, outbound, route};

for_every_store! {
    a_node_reads_the_rows_of_its_channels
    a_message_is_begun_only_under_the_lease_of_its_channel
    the_end_of_an_attempt_is_written_under_its_epoch
    the_next_holder_settles_the_attempts_of_the_last_one
    a_node_settles_its_own_attempts_after_a_restart_of_its_delivery
    a_daemon_that_is_alone_continues_after_a_cluster
}

type Store = Arc<SqlStore>;

/// Claims a channel for a new node. No node has a row, so each earlier owner has ended.
async fn claim(store: &Store, channel: &str) -> WorkLease {
    let work = LeasedWork::Channel(channel.into());
    store.claim(&work, BootId::new()).await.unwrap().expect("its owner has ended")
}

async fn enqueue(store: &Store, message: Outbound) -> OutboxId {
    let id = message.id;
    store.enqueue(message).await.unwrap();
    id
}

fn over_http(text: &str) -> Outbound {
    Outbound { route: ReplyRoute { channel: "http".into(), ..route("h") }, ..outbound("h", text) }
}

fn callback(conversation: &str) -> Outbound {
    Outbound { callback: Some("https://example.com/ended".into()), ..outbound(conversation, conversation) }
}

fn texts(rows: &[OutboxRow]) -> Vec<&str> {
    rows.iter().map(|row| &*row.message.text).collect()
}

async fn due(store: &Store, leases: Option<&[WorkLease]>) -> Vec<OutboxRow> {
    store.due(at(0), &[], leases, 10, 10).await.unwrap()
}

fn is_lost(result: Result<(), StoreError>, lease: &WorkLease) -> bool {
    matches!(result, Err(StoreError::WorkLost(work)) if work == lease.work)
}

async fn a_node_reads_the_rows_of_its_channels(store: Store) {
    enqueue(&store, outbound("a", "by telegram")).await;
    let later = enqueue(&store, over_http("over http")).await;
    let (telegram, http) = (claim(&store, "telegram").await, claim(&store, "http").await);
    let both = [telegram, http];
    assert_eq!(texts(&due(&store, Some(&both)).await), ["by telegram", "over http"]);
    assert_eq!(texts(&due(&store, Some(&both[..1])).await), ["by telegram"]);
    assert_eq!(texts(&due(&store, Some(&[])).await), [""; 0]);
    store
        .mark(later, OutboxState::Waiting { until: at(70), pieces_sent: 0, unsure_since: None }, at(0), Some(&both[1]))
        .await
        .unwrap();
    assert_eq!(store.next_due(Some(&both[..1])).await.unwrap(), None, "another node waits for it");
    assert_eq!(store.next_due(Some(&both)).await.unwrap(), Some(at(70)));
    assert_eq!(store.next_due(None).await.unwrap(), Some(at(70)));
}

async fn a_message_is_begun_only_under_the_lease_of_its_channel(store: Store) {
    let id = enqueue(&store, outbound("a", "hi")).await;
    let first = claim(&store, "telegram").await;
    let second = claim(&store, "telegram").await;
    let http = claim(&store, "http").await;
    let begin = async |lease: &WorkLease| store.mark(id, OutboxState::Sending, at(0), Some(lease)).await;
    for stale in [first.clone(), WorkLease { epoch: second.epoch, ..first }, WorkLease { epoch: 1, ..second.clone() }] {
        assert!(is_lost(begin(&stale).await, &stale), "{stale:?}");
    }
    let outcome = begin(&http).await;
    assert!(matches!(outcome, Err(StoreError::NotFound(_))), "{outcome:?}");
    assert_eq!(due(&store, Some(std::slice::from_ref(&second))).await[0].attempts, 0, "nothing was begun");
    begin(&second).await.unwrap();
    let outcome = begin(&second).await;
    assert!(matches!(outcome, Err(StoreError::NotFound(_))), "it is being sent: {outcome:?}");
    store.give_up(&second).await.unwrap();
    store.mark(id, OutboxState::Sent, at(0), Some(&second)).await.unwrap();
}

async fn the_end_of_an_attempt_is_written_under_its_epoch(store: Store) {
    let id = enqueue(&store, callback("a")).await;
    let first = claim(&store, "telegram").await;
    store.mark(id, OutboxState::Sending, at(0), Some(&first)).await.unwrap();
    let second = claim(&store, "telegram").await;
    let waiting = OutboxState::Waiting { until: at(0), pieces_sent: 0, unsure_since: None };
    for state in [OutboxState::Sent, OutboxState::Ambiguous, OutboxState::Failed, waiting.clone()] {
        let result = store.mark(id, state, at(0), Some(&second)).await;
        assert!(matches!(result, Err(StoreError::NotFound(_))), "it is not its attempt: {result:?}");
    }
    store.settle_interrupted(at(0), Some(std::slice::from_ref(&second)), &[]).await.unwrap();
    for state in [OutboxState::Sent, waiting.clone()] {
        assert!(is_lost(store.mark(id, state, at(0), Some(&first)).await, &first), "it waits for the next holder");
    }
    store.mark(id, OutboxState::Sending, at(0), Some(&second)).await.unwrap();
    for state in [OutboxState::Sent, OutboxState::Failed, waiting] {
        assert!(is_lost(store.mark(id, state, at(0), Some(&first)).await, &first), "the next holder sends it");
    }
    store.mark(id, OutboxState::Sent, at(0), Some(&second)).await.unwrap();
}

async fn the_next_holder_settles_the_attempts_of_the_last_one(store: Store) {
    let message = enqueue(&store, outbound("a", "for people")).await;
    let other = enqueue(&store, over_http("of another channel")).await;
    let posted = enqueue(&store, callback("b")).await;
    let (first, http) = (claim(&store, "telegram").await, claim(&store, "http").await);
    for (id, lease) in [(message, &first), (posted, &first), (other, &http)] {
        store.mark(id, OutboxState::Sending, at(0), Some(lease)).await.unwrap();
    }
    let second = [claim(&store, "telegram").await];
    let settled = store.settle_interrupted(at(5), Some(&second), &[]).await.unwrap();
    assert_eq!(texts(&settled), ["for people"]);
    let events = store.read(EventQuery::default()).await.unwrap();
    let told =
        events.iter().filter(|event| matches!(&event.kind, EventKind::Delivered { outcome } if outcome == "ambiguous"));
    assert_eq!(told.map(|event| event.at).collect::<Vec<_>>(), [at(5)]);
    assert_eq!(texts(&due(&store, Some(&second)).await), ["b"], "its receiver recognises a repetition");

    store.mark(posted, OutboxState::Sending, at(0), Some(&second[0])).await.unwrap();
    assert_eq!(store.settle_interrupted(at(6), Some(&[first]), &[]).await.unwrap(), [], "too late");
    store.mark(posted, OutboxState::Sent, at(0), Some(&second[0])).await.unwrap();
    store.mark(other, OutboxState::Sent, at(0), Some(&http)).await.unwrap();
}

async fn a_node_settles_its_own_attempts_after_a_restart_of_its_delivery(store: Store) {
    let id = enqueue(&store, outbound("a", "hi")).await;
    let lease = [claim(&store, "telegram").await];
    store.mark(id, OutboxState::Sending, at(0), Some(&lease[0])).await.unwrap();
    assert_eq!(texts(&store.settle_interrupted(at(0), Some(&lease), &[]).await.unwrap()), ["hi"]);
}

async fn a_daemon_that_is_alone_continues_after_a_cluster(store: Store) {
    let (again, begun) = (enqueue(&store, outbound("a", "again")).await, enqueue(&store, outbound("b", "begun")).await);
    let lease = claim(&store, "telegram").await;
    for id in [again, begun] {
        store.mark(id, OutboxState::Sending, at(0), Some(&lease)).await.unwrap();
    }
    store
        .mark(again, OutboxState::Waiting { until: at(0), pieces_sent: 0, unsure_since: None }, at(0), Some(&lease))
        .await
        .unwrap();
    assert_eq!(texts(&store.settle_interrupted(at(0), None, &[]).await.unwrap()), ["begun"]);
    store.mark(again, OutboxState::Sending, at(0), None).await.unwrap();
    store.mark(again, OutboxState::Sent, at(0), None).await.unwrap();
    assert_eq!(due(&store, None).await, []);
}
