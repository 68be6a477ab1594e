//! A snapshot of skills, which one writer refers to while another deletes the last thread that has it.

use belay_protocol::{Archive, SkillSnapshot, SkillStore, StoreHealth};

use super::holder::waiting;
use super::two::{Two, two};
use crate::kit::*;

fn skills() -> SkillSnapshot {
    SkillSnapshot { digest: "d".into(), text: "skills".into() }
}

/// Two sessions, of which `a` has the skills.
async fn sessions(two: &Two) -> belay_protocol::Lease {
    let lease = open(&two.one, "a").await.lease;
    open(&two.other, "b").await;
    two.one.keep_skills(&"a".into(), skills()).await.unwrap();
    // Both writes are answered before their commit, and until then the other writer does not see them.
    two.one.ping().await.unwrap();
    two.other.ping().await.unwrap();
    lease
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_waits_for_a_thread_that_begins_to_refer_to_the_skills() {
    let Some(two) = two().await else { return };
    let lease = sessions(&two).await;
    // The other writer has executed its write, and its commit waits.
    let row = format!("SELECT 1 FROM writers WHERE {} FOR UPDATE", two.of_other);
    let committing = two.hold(&row, &waiting(2), "SELECT 1").await;
    two.other.keep_skills(&"b".into(), skills()).await.unwrap();
    two.one.delete_session(&lease, at(3_000)).await.unwrap();
    committing.await.unwrap();
    assert_eq!(two.one.kept_skills(&"b".into()).await.unwrap().as_deref(), Some("skills"));
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_sees_the_thread_for_which_it_has_waited() {
    let Some(two) = two().await else { return };
    let lease = sessions(&two).await;
    let refer = "UPDATE threads SET skills = 'd' WHERE session = 'b'";
    let keeping = two.hold("SELECT 1 FROM skill_snapshots FOR UPDATE", &waiting(1), refer).await;
    two.one.delete_session(&lease, at(3_000)).await.unwrap();
    keeping.await.unwrap();
    assert_eq!(two.one.kept_skills(&"b".into()).await.unwrap().as_deref(), Some("skills"));
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deletion_of_the_last_two_threads_at_once_deletes_the_skills() {
    let Some(two) = two().await else { return };
    let lease = sessions(&two).await;
    let last = open(&two.other, "b").await.lease;
    two.other.keep_skills(&"b".into(), skills()).await.unwrap();
    two.other.ping().await.unwrap();
    // One deletion waits for the row, the other one for the writer that indexes.
    let held = two.hold("SELECT 1 FROM skill_snapshots FOR UPDATE", &waiting(2), "SELECT 1").await;
    let (one, other) =
        tokio::join!(two.one.delete_session(&lease, at(3_000)), two.other.delete_session(&last, at(3_000)));
    one.unwrap();
    other.unwrap();
    held.await.unwrap();
    assert_eq!(two.value("SELECT COUNT(*) FROM skill_snapshots").await, "0");
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn skills_that_a_session_has_or_cannot_have_leave_no_row() {
    let Some(two) = two().await else { return };
    sessions(&two).await;
    for session in ["a", "nobody"] {
        let others = SkillSnapshot { digest: format!("of {session}"), ..skills() };
        two.other.keep_skills(&session.into(), others).await.unwrap();
    }
    two.other.ping().await.unwrap();
    assert_eq!(two.value("SELECT string_agg(digest, ' ') FROM skill_snapshots").await, "d");
    two.close().await;
}
