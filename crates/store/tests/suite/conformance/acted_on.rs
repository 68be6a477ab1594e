//! Keys of commands and answers that were acted on.

use std::sync::Arc;

use belay_protocol::store::{ACTED_ON_KEPT, ClaimState, Claimed, KeyClaim};
use belay_protocol::{
    Acceptance, ActedOn, BootId, ClusterStore, DispatcherStore, IdempotencyKey, LaneStore, NewInput, UnixMillis,
};
use belay_store::SqlStore;

use super::for_every_store;
use crate::kit::{Store, input, open_as};

for_every_store! {
    what_was_acted_on_is_known_once_in_order_and_the_oldest_is_forgotten
    what_was_sent_is_known_as_it_was_first_and_of_a_secret_nothing
    a_key_is_claimed_once_and_its_record_ends_the_claim
    the_claim_of_a_daemon_that_has_ended_is_unknown_or_taken_over
    a_claim_is_released_by_its_owner_alone
    of_claims_at_once_one_succeeds
    a_claim_and_a_message_exclude_each_other
}

fn key(n: usize) -> IdempotencyKey {
    IdempotencyKey { channel: "telegram".into(), account: "bot".into(), message_id: n.to_string().into() }
}

fn command(n: usize) -> ActedOn {
    ActedOn { key: key(n), digest: Some(format!("digest {n}")), refused: n.is_multiple_of(2) }
}

async fn what_was_acted_on_is_known_once_in_order_and_the_oldest_is_forgotten(store: Arc<dyn Store>) {
    assert_eq!(store.acted_on().await.unwrap(), []);
    for n in [1, 2, 1] {
        store.note_acted_on(&command(n), UnixMillis(5)).await.unwrap();
    }
    assert_eq!(store.acted_on().await.unwrap(), [command(1), command(2)]);
    for n in 3..=ACTED_ON_KEPT + 2 {
        store.note_acted_on(&command(n), UnixMillis(6)).await.unwrap();
    }
    let kept: Vec<ActedOn> = (3..=ACTED_ON_KEPT + 2).map(command).collect();
    assert_eq!(store.acted_on().await.unwrap(), kept);
}

async fn what_was_sent_is_known_as_it_was_first_and_of_a_secret_nothing(store: Arc<dyn Store>) {
    let secret = ActedOn { key: key(1), digest: None, refused: false };
    let later = ActedOn { digest: Some("other".into()), ..command(2) };
    for acted_on in [&secret, &command(2), &later, &command(1)] {
        store.note_acted_on(acted_on, UnixMillis(5)).await.unwrap();
    }
    assert_eq!(store.acted_on().await.unwrap(), [secret, command(2)]);
}

fn claim(n: usize, owner: BootId) -> KeyClaim {
    let ActedOn { key, digest, .. } = command(n);
    KeyClaim { key, digest, owner, from: None, again_since: None, at: UnixMillis(7) }
}

fn used(n: usize, state: ClaimState) -> Claimed {
    Claimed::Used { digest: command(n).digest, state }
}

async fn node(store: &SqlStore, name: &str) -> BootId {
    let boot = BootId::new();
    store.put_node(boot, name, 60_000).await.unwrap();
    boot
}

async fn a_key_is_claimed_once_and_its_record_ends_the_claim(store: Arc<SqlStore>) {
    let (a, b) = (node(&store, "a").await, node(&store, "b").await);
    for n in [1, 2] {
        assert_eq!(store.claim_key(claim(n, a)).await.unwrap(), Claimed::Now);
        assert_eq!(store.claim_key(claim(n, a)).await.unwrap(), Claimed::Now, "it is its own");
        assert_eq!(store.claim_key(claim(n, b)).await.unwrap(), used(n, ClaimState::InProgress));
    }
    assert_eq!(store.acted_on().await.unwrap(), []);
    // A command that its claimant has sent to another node is claimed there.
    assert_eq!(store.claim_key(KeyClaim { from: Some(a), ..claim(2, b) }).await.unwrap(), Claimed::Now);
    assert_eq!(store.claim_key(claim(2, a)).await.unwrap(), used(2, ClaimState::InProgress));
    for n in [1, 2, 3] {
        store.note_acted_on(&command(n), UnixMillis(8)).await.unwrap();
        // The first record counts.
        store.note_acted_on(&ActedOn { refused: !command(n).refused, ..command(n) }, UnixMillis(8)).await.unwrap();
    }
    assert_eq!(store.acted_on().await.unwrap(), [1, 2, 3].map(command));
    for (n, state) in [(1, ClaimState::CarriedOut), (2, ClaimState::Refused), (3, ClaimState::CarriedOut)] {
        let again = KeyClaim { from: Some(b), again_since: Some(UnixMillis(0)), ..claim(n, a) };
        assert_eq!(store.claim_key(again).await.unwrap(), used(n, state), "{n}");
    }
}

async fn the_claim_of_a_daemon_that_has_ended_is_unknown_or_taken_over(store: Arc<SqlStore>) {
    let (a, b) = (node(&store, "a").await, node(&store, "b").await);
    assert_eq!(store.claim_key(claim(1, a)).await.unwrap(), Claimed::Now);
    let since = |at| KeyClaim { again_since: Some(UnixMillis(at)), ..claim(1, b) };
    assert_eq!(store.claim_key(since(0)).await.unwrap(), used(1, ClaimState::InProgress));
    store.release(a).await.unwrap();
    assert_eq!(store.claim_key(claim(1, b)).await.unwrap(), used(1, ClaimState::Unknown));
    assert_eq!(store.claim_key(since(8)).await.unwrap(), used(1, ClaimState::Unknown), "it was made before");
    let other = KeyClaim { digest: Some("other".into()), ..since(0) };
    assert_eq!(store.claim_key(other).await.unwrap(), used(1, ClaimState::Unknown));
    assert_eq!(store.claim_key(since(7)).await.unwrap(), Claimed::Now);
    assert_eq!(store.claim_key(since(7)).await.unwrap(), Claimed::Now);
    assert_eq!(
        store.claim_key(KeyClaim { owner: BootId::new(), ..since(7) }).await.unwrap(),
        used(1, ClaimState::InProgress)
    );
    // A daemon that is alone is not among the nodes.
    assert_eq!(store.claim_key(claim(2, BootId::new())).await.unwrap(), Claimed::Now);
    assert_eq!(store.claim_key(claim(2, BootId::new())).await.unwrap(), used(2, ClaimState::Unknown));
}

async fn a_claim_is_released_by_its_owner_alone(store: Arc<SqlStore>) {
    let (a, b) = (node(&store, "a").await, node(&store, "b").await);
    store.claim_key(claim(1, a)).await.unwrap();
    store.release_key(&key(1), b).await.unwrap();
    assert_eq!(store.claim_key(claim(1, b)).await.unwrap(), used(1, ClaimState::InProgress));
    store.release_key(&key(1), a).await.unwrap();
    assert_eq!(store.claim_key(claim(1, b)).await.unwrap(), Claimed::Now);
    store.note_acted_on(&command(1), UnixMillis(8)).await.unwrap();
    store.release_key(&key(1), b).await.unwrap();
    assert_eq!(store.acted_on().await.unwrap(), [command(1)], "a result is no claim");
}

async fn of_claims_at_once_one_succeeds(store: Arc<SqlStore>) {
    let nodes = [node(&store, "a").await, node(&store, "b").await, node(&store, "c").await];
    for n in 1..=20 {
        let claims = nodes.map(|node| {
            let store = store.clone();
            tokio::spawn(async move { store.claim_key(claim(n, node)).await.unwrap() })
        });
        let mut claimed = Vec::new();
        for claim in claims {
            claimed.push(claim.await.unwrap());
        }
        assert_eq!(claimed.iter().filter(|claimed| **claimed == Claimed::Now).count(), 1, "{claimed:?}");
        let in_progress = used(n, ClaimState::InProgress);
        assert_eq!(claimed.iter().filter(|claimed| **claimed == in_progress).count(), 2, "{claimed:?}");
    }
}

async fn a_claim_and_a_message_exclude_each_other(store: Arc<SqlStore>) {
    let a = node(&store, "a").await;
    let lease = open_as(&*store, "s", a).await.lease;
    let message = |n| NewInput { key: Some(key(n)), digest: command(n).digest, ..input("hello") };
    assert_eq!(store.accept(&lease, message(1)).await.unwrap(), Acceptance::New);
    assert!(
        matches!(store.claim_key(claim(1, a)).await.unwrap(), Claimed::Message(known) if known.digest == "digest 1")
    );
    store.claim_key(claim(2, a)).await.unwrap();
    store.note_acted_on(&command(3), UnixMillis(8)).await.unwrap();
    for (n, state) in [(2, ClaimState::InProgress), (3, ClaimState::CarriedOut)] {
        let used = Acceptance::Used { digest: command(n).digest, state };
        assert_eq!(store.accept(&lease, message(n)).await.unwrap(), used);
    }
    store.release_key(&key(2), a).await.unwrap();
    assert_eq!(store.accept(&lease, message(2)).await.unwrap(), Acceptance::New);
    let without = NewInput { key: None, ..input("hello") };
    assert_eq!(store.accept(&lease, without).await.unwrap(), Acceptance::New);
}
