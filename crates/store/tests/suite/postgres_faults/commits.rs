//! A connection that is lost during a commit.

use belay_protocol::{Acceptance, JournalStore, LaneStore, Message, StoreHealth};
use belay_testkit::proxy::{Action, Direction};

use super::*;
use crate::kit::*;

/// A checkpoint that was answered before its commit, and a message that waits for the commit. Both, or the answers to them.
async fn both(
    store: &SqlStore,
    lease: &belay_protocol::Lease,
    run: belay_protocol::RunId,
) -> (Result<(), StoreError>, Result<Acceptance, StoreError>) {
    let relaxed = store.checkpoint(lease, checkpoint(run, vec![Message::assistant("one")]));
    let committed = store.accept(lease, queued("two"));
    tokio::join!(relaxed, committed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_request_or_answer_is_lost_is_done_once_and_nobody_notices() {
    for direction in [Direction::ToClient, Direction::ToServer] {
        let Some(Proxied { store, proxy, database }) = proxied(LONG).await else { return };
        let lease = open(&store, "s").await.lease;
        let run = accept(&store, &lease, input("hi")).await;
        let mut tip = belay_protocol::EventLog::tip(&store);
        tip.mark_unchanged();
        proxy.arm(at_commit(direction, Action::CutBefore));
        let (relaxed, committed) = both(&store, &lease, run).await;
        relaxed.unwrap();
        assert_eq!(committed.unwrap(), Acceptance::New);
        proxy.until_happened(1).await;
        store.ping().await.unwrap();
        assert!(tip.has_changed().unwrap(), "the events are announced");
        let opened = open(&store, "s").await;
        assert_eq!(opened.unfinished.len(), 2, "{direction:?}");
        assert_eq!(texts(&opened.unfinished[0].messages), ["hi", "one"], "{direction:?}");
        store.close().await;
        assert_eq!(
            database.sql("select count(*) from belay.runs; select count(*) from belay.writers").unwrap(),
            "2\n1"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stays_away_during_a_commit_costs_an_error_and_nothing_is_doubled() {
    for (direction, done) in [(Direction::ToClient, 2), (Direction::ToServer, 1)] {
        let Some(Proxied { store, proxy, database }) = proxied(LONG).await else { return };
        let lease = open(&store, "s").await.lease;
        let run = accept(&store, &lease, input("hi")).await;
        let mut tip = belay_protocol::EventLog::tip(&store);
        tip.mark_unchanged();
        proxy.arm(at_commit(direction, Action::CutBeforeAndRefuse));
        let (relaxed, committed) = both(&store, &lease, run).await;
        relaxed.unwrap();
        assert!(is_unavailable(&committed), "{committed:?}");
        let words = store.ping().await.unwrap_err().to_string();
        assert!(words.contains("check that it runs"), "{words}");
        proxy.accept();
        while is_unavailable(&store.ping().await) {}
        assert_eq!(tip.has_changed().unwrap(), done == 2, "the events of an earlier commit are announced");
        let opened = open(&store, "s").await;
        assert_eq!(opened.unfinished.len(), done, "{direction:?}");
        assert_eq!(texts(&opened.unfinished[0].messages), ["hi", "one"], "{direction:?}");
        assert_eq!(database.sql("select count(*) from belay.runs").unwrap(), done.to_string());
        store.close().await;
    }
}

/// The first attempt to connect anew is cut too, at each of its messages: with every cut the lock may stay with a session
/// that the store does not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_while_connecting_anew_leave_no_session_with_the_lock() {
    let Some(Proxied { store, proxy, database: _database }) = proxied(LONG).await else { return };
    for bytes in [&b"pg_terminate_backend"[..], b"pg_try_advisory_lock", b"INTO writers", b"transaction_read_only"] {
        for direction in [Direction::ToServer, Direction::ToClient] {
            let before = proxy.happened();
            let action = if direction == Direction::ToServer { Action::CutBefore } else { Action::CutAfter };
            // Seen on their way to the server; the other action lets the statement arrive.
            proxy.arm(Fault { direction: Direction::ToServer, bytes: bytes.to_vec(), nth: 1, action });
            proxy.cut_all();
            while is_unavailable(&store.ping().await) {}
            proxy.until_happened(before + 1).await;
        }
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_cuts_again_and_again_loses_nothing_and_doubles_nothing() {
    let Some(Proxied { store, proxy, database }) = proxied(LONG).await else { return };
    let lease = open(&store, "s").await.lease;
    for n in 0..40_u32 {
        let direction = if n % 2 == 0 { Direction::ToClient } else { Direction::ToServer };
        // Each third cut is at a statement, and leaves its transaction open on the server for moments.
        let bytes = if n % 3 == 0 { b"INSERT".to_vec() } else { COMMIT.to_vec() };
        proxy.arm(Fault { direction, bytes, nth: 1, action: Action::CutBefore });
        let message = belay_protocol::NewInput { key: Some(key(&n.to_string())), ..queued("hi") };
        assert_eq!(store.accept(&lease, message).await.unwrap(), Acceptance::New, "{n}");
    }
    assert_eq!(database.sql("select count(*), count(distinct id) from belay.runs").unwrap(), "40|40");
    store.close().await;
}
