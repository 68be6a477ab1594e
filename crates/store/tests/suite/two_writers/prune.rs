//! Deletion of old conversations beside another writer that opens them.

use belay_protocol::{Archive, BootId, LaneClaim, LaneStore, Retention, SearchQuery, SessionLifetime, StoreHealth};

use super::holder::waiting;
use super::two::two;
use crate::kit::*;

/// After everything that a test writes.
const LATER: i64 = 100_000;

fn everything() -> Retention {
    Retention { threads_before: Some(at(LATER)), ephemeral_before: Some(at(LATER)), ..Retention::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_another_writer_has_locked_stays() {
    for lifetime in [SessionLifetime::Lasting, SessionLifetime::Ephemeral] {
        let Some(two) = two().await else { return };
        let lease = two
            .one
            .open_lane(&"s".into(), lifetime, LaneClaim::free(BootId::new()), at(500))
            .await
            .unwrap()
            .opened()
            .unwrap()
            .lease;
        turn(&two.one, &lease, "hi").await;
        let open = format!("UPDATE sessions SET opened_at = {LATER}");
        let pinged = two.committed().await;
        let opening = two.hold(&open, &pinged, "SELECT 1").await;
        let removed = two.one.prune(everything(), 1_000).await.unwrap();
        assert_eq!((removed.sessions, removed.threads, removed.messages), (0, 0, 0), "{lifetime:?}");
        two.other.ping().await.unwrap();
        opening.await.unwrap();
        turn(&two.one, &lease, "again").await;
        assert_eq!(two.value("SELECT COUNT(*) FROM messages").await, "4");
        two.close().await;
    }
}

/// Both are found to be old. The deletion of the first waits, and meanwhile the second is opened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_was_opened_after_it_was_found_stays() {
    let Some(two) = two().await else { return };
    for session in ["a", "b"] {
        let lease = open(&two.one, session).await.lease;
        turn(&two.one, &lease, "hi").await;
    }
    // A search indexes the messages, which would wait for them before it looks.
    two.one.search(SearchQuery { words: "hi".into(), ..SearchQuery::default() }).await.unwrap();
    let open = format!(
        "UPDATE sessions SET opened_at = {LATER}
         WHERE session = (SELECT session FROM sessions FOR UPDATE SKIP LOCKED LIMIT 1)"
    );
    let opening = two.hold("SELECT 1 FROM messages FOR UPDATE", &waiting(1), &open).await;
    let removed = two.one.prune(everything(), 1_000).await.unwrap();
    opening.await.unwrap();
    assert_eq!((removed.sessions, removed.threads, removed.messages), (1, 1, 2));
    let left = "SELECT COUNT(*) FROM sessions s JOIN threads t ON t.id = s.thread JOIN messages m ON m.thread = t.id";
    assert_eq!(two.value(left).await, "2");
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_opens_a_session_can_use_it_whatever_is_deleted() {
    let Some(two) = two().await else { return };
    for round in 0..60 {
        let session = format!("s{round}").into();
        let lifetime = [SessionLifetime::Lasting, SessionLifetime::Ephemeral][round % 2];
        let lease = two
            .one
            .open_lane(&session, lifetime, LaneClaim::free(BootId::new()), at(500))
            .await
            .unwrap()
            .opened()
            .unwrap()
            .lease;
        turn(&two.one, &lease, "hi").await;
        let (opened, removed) = tokio::join!(
            two.other.open_lane(&session, lifetime, LaneClaim::free(BootId::new()), at(LATER)),
            two.one.prune(everything(), 1_000)
        );
        let (opened, removed) = (opened.unwrap().opened().unwrap(), removed.unwrap());
        assert_eq!(opened.thread.messages.len(), if removed.sessions == 0 { 2 } else { 0 }, "{round} {removed:?}");
        turn(&two.other, &opened.lease, "again").await;
        two.other.delete_session(&opened.lease, at(LATER)).await.unwrap();
    }
    two.close().await;
}
