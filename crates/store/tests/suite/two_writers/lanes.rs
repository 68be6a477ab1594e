//! Claims to the lanes of sessions by two nodes.

use belay_protocol::{
    BootId, ClaimMode, DispatcherStore, JournalStore, LaneClaim, LaneStore, Lease, Opening, RunStore, SessionLifetime,
    StoreError, StoreHealth,
};
use belay_store::SqlStore;

use super::holder::waiting;
use super::two::{Two, two};
use crate::kit::*;

/// A node that lives.
async fn node(two: &Two, name: &str) -> BootId {
    let boot = BootId::new();
    two.value(&format!(
        "INSERT INTO nodes (boot, name, version, schema_min, schema_max, settings, started_at, lease_until)
         VALUES (decode('{}', 'hex'), '{name}', '1', 1, 1, '', 0, 0)",
        boot.as_uuid().simple()
    ))
    .await;
    boot
}

/// Ends a node.
async fn end(two: &Two, boot: BootId) {
    let sql = "UPDATE nodes SET ended_at = 1, ended_by = 'lease' WHERE boot";
    two.value(&format!("{sql} = decode('{}', 'hex')", boot.as_uuid().simple())).await;
}

async fn claim(store: &SqlStore, session: &str, owner: BootId, mode: ClaimMode) -> Result<Opening, StoreError> {
    store.open_lane(&session.into(), SessionLifetime::Lasting, LaneClaim { owner, mode }, at(500)).await
}

/// The lease, or the owner that refuses it.
fn outcome(opening: Result<Opening, StoreError>) -> Result<Lease, BootId> {
    match opening.unwrap() {
        Opening::Opened(opened) => Ok(opened.lease),
        Opening::OwnedBy(owner) => Err(owner),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_is_taken_from_an_ended_owner_and_an_idle_one_also_from_a_living_one() {
    let Some(two) = two().await else { return };
    let (a, b) = (node(&two, "a").await, node(&two, "b").await);
    let of_a = outcome(claim(&two.one, "s", a, ClaimMode::Free).await).unwrap();
    let run = accept(&two.one, &of_a, input("hi")).await;
    for mode in [ClaimMode::Free, ClaimMode::Idle] {
        assert_eq!(outcome(claim(&two.other, "s", b, mode).await), Err(a), "{mode:?}: it has a run");
    }
    assert_eq!(two.other.unfinished_runs().await.unwrap(), [], "the node that has it knows it");

    two.one.finish_runs(&of_a, vec![finished(run, "hello")]).await.unwrap();
    assert_eq!(outcome(claim(&two.other, "s", b, ClaimMode::Free).await), Err(a), "its owner lives");
    let of_b = outcome(claim(&two.other, "s", b, ClaimMode::Idle).await).unwrap();
    assert_eq!((of_b.owner, of_b.epoch), (b, of_a.epoch + 1));
    let stale = claim(&two.one, "s", a, ClaimMode::Own(of_a.epoch)).await;
    assert!(matches!(stale, Err(StoreError::LeaseLost(_))), "a stale owner does not take it back: {stale:?}");

    let run = accept(&two.other, &of_b, input("again")).await;
    assert_eq!(outcome(claim(&two.one, "s", a, ClaimMode::Idle).await), Err(b));
    end(&two, b).await;
    let left = two.one.unfinished_runs().await.unwrap();
    assert_eq!(left.iter().map(|left| left.run_id).collect::<Vec<_>>(), [run]);
    let back = claim(&two.one, "s", a, ClaimMode::Free).await.unwrap().opened().unwrap();
    assert_eq!(back.unfinished.iter().map(|left| left.run_id).collect::<Vec<_>>(), [run]);
    let late = two.other.finish_runs(&of_b, vec![finished(run, "late")]).await;
    assert!(matches!(late, Err(StoreError::LeaseLost(_))), "{late:?}");
    let again = claim(&two.one, "s", a, ClaimMode::Own(back.lease.epoch)).await.unwrap().opened().unwrap();
    assert_eq!(again.lease.epoch, back.lease.epoch + 1);
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_waited_for_the_owner_sees_the_run_that_it_accepted() {
    let Some(two) = two().await else { return };
    let (a, b) = (node(&two, "a").await, node(&two, "b").await);
    let of_a = outcome(claim(&two.one, "s", a, ClaimMode::Free).await).unwrap();
    two.one.ping().await.unwrap();
    // The third session is the owner: it has the row of the session, and commits a run while the claim waits for it.
    let accepting = two
        .hold(
            "SELECT 1 FROM sessions FOR UPDATE",
            &waiting(1),
            "INSERT INTO runs (id, session, status, accepted_at, work, channel, principal, authority, relayed, from_person, text)
             VALUES ('1234567890123456', 's', 'queued', 1, '\"chat\"', 'c', 'p', 'conversation', 0, 1, 'hi')",
        )
        .await;
    assert_eq!(outcome(claim(&two.other, "s", b, ClaimMode::Idle).await), Err(of_a.owner));
    accepting.await.unwrap();
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_nodes_that_claim_at_once_one_has_the_lane() {
    let Some(two) = two().await else { return };
    let (a, b) = (node(&two, "a").await, node(&two, "b").await);
    for round in 0..40 {
        let session = format!("s{round}");
        let (one, other) = tokio::join!(
            claim(&two.one, &session, a, ClaimMode::Free),
            claim(&two.other, &session, b, ClaimMode::Free)
        );
        match (outcome(one), outcome(other)) {
            (Ok(lease), Err(owner)) => assert_eq!((lease.owner, owner), (a, a)),
            (Err(owner), Ok(lease)) => assert_eq!((lease.owner, owner), (b, b)),
            both => panic!("{both:?}"),
        }
    }
    two.close().await;
}

/// The writes of other lanes that share the transaction are not repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_without_the_lease_changes_no_row_and_needs_no_rollback() {
    let Some(two) = two().await else { return };
    let (a, b) = (node(&two, "a").await, node(&two, "b").await);
    let of_a = outcome(claim(&two.one, "s", a, ClaimMode::Free).await).unwrap();
    let run = accept(&two.one, &of_a, input("hi")).await;
    end(&two, a).await;
    let of_b = outcome(claim(&two.other, "s", b, ClaimMode::Free).await).unwrap();
    assert_eq!((of_b.owner, of_b.epoch), (b, of_a.epoch + 1));
    let refused = async || {
        let accepted = two.one.accept(&of_a, input("late")).await.map(drop);
        let progress = two.one.checkpoint(&of_a, checkpoint(run, Vec::new())).await;
        let ended = two.one.finish_runs(&of_a, vec![finished(run, "late")]).await;
        for outcome in [accepted, progress, ended] {
            assert!(matches!(outcome, Err(StoreError::LeaseLost(_))), "{outcome:?}");
        }
    };
    refused().await; // prepares the statements
    two.one.ping().await.unwrap();
    let before = two.one.stats();
    for _ in 0..20 {
        refused().await;
    }
    let after = two.one.stats();
    let (trips, commits) = (after.round_trips - before.round_trips, after.commits - before.commits);
    // A commit is counted after its round trip.
    assert!(
        (60..=61).contains(&(trips - commits)),
        "one round trip for each of 60 writes: {trips} with {commits} commits"
    );
    two.close().await;
}
