//! Notices in sessions whose lane belongs to another daemon.

use belay_protocol::{
    Acceptance, HeldJobs, JobAttempts, JobCaps, JobChange, JobChanged, JobCreated, JobId, JobState, JobStore,
    LaneStore, SessionNotice, ThreadEdit,
};
use belay_store::SqlStore;

use super::two::two;
use crate::kit::*;

const CAPS: JobCaps = JobCaps { at_work: 10, at_work_each: 10, open_each: 10, open: 10 };

async fn at_work(store: &SqlStore) -> JobId {
    let JobCreated::New(job) = store.create(job("ann"), CAPS).await.unwrap() else { panic!("it is new") };
    store.begin_next(CAPS, HeldJobs::default(), boot(), at(2_000)).await.unwrap().expect("a slot");
    job.job_id
}

/// The end of a job that was asked for in the session `s`.
fn done(job: JobId) -> JobChange {
    JobChange {
        job,
        to: JobState::Completed,
        attempt: None,
        detail: String::new(),
        result: Some("42".into()),
        notice: None,
        told_in: Some(SessionNotice { session: "s".into(), text: "it is 42".into() }),
        at: at(3_000),
    }
}

/// `/new` changes the active thread of the session while the notice is on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notice_that_meets_a_new_conversation_is_in_it() {
    let Some(two) = two().await else { return };
    let mut lease = open(&two.one, "s").await.lease;
    turn(&two.one, &lease, "before").await;
    let job = at_work(&two.other).await;
    let (edited, changed) = two
        .race(
            "LOCK TABLE threads IN SHARE MODE",
            two.one.edit_thread(&lease, ThreadEdit::New, at(3_000)),
            two.other.change(done(job)),
        )
        .await;
    edited.unwrap();
    assert!(matches!(changed.unwrap(), JobChanged::Now(_)));
    let opened = reload(&two.one, &mut lease).await;
    assert_eq!(texts(&opened.thread.messages), ["This is a notice from Belay, not a message of the user. it is 42"]);
    two.close().await;
}

/// Without the lock both messages get the same position, and the second transaction is rolled back and repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notice_that_meets_a_message_waits_and_gets_the_next_position() {
    let Some(two) = two().await else { return };
    let lease = open(&two.one, "s").await.lease;
    let job = at_work(&two.other).await;
    let (accepted, changed) = two
        .race("LOCK TABLE threads IN SHARE MODE", two.one.accept(&lease, input("hello")), two.other.change(done(job)))
        .await;
    assert_eq!(accepted.unwrap(), Acceptance::New);
    assert!(matches!(changed.unwrap(), JobChanged::Now(_)));
    two.one.close().await;
    two.other.close().await;
    tokio::task::block_in_place(|| {
        let sql = |sql: &str| two.database.sql(sql).unwrap().trim().to_owned();
        assert_eq!(sql("SELECT position, turn FROM messages ORDER BY position"), "1|1\n2|1");
        // A connection reports its transactions at its end.
        let connected = "SELECT COUNT(*) FROM pg_stat_activity
                         WHERE datname = current_database() AND pid <> pg_backend_pid()";
        while sql(connected) != "0" {}
        assert_eq!(sql("SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()"), "0");
    });
}
