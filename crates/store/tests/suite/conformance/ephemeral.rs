//! Sessions that were created for one request.

use std::sync::Arc;

use belay_protocol::{
    ApprovalState, BootId, FinishedRun, JobCaps, JobChange, JobState, LaneClaim, NewInput, NewJob, OpenedLane,
    Outbound, OutboxState, Removed, Retention, SessionFilter, SessionLifetime, StoreError, ThreadEdit,
};

use super::for_every_store;
use crate::kit::*;

for_every_store! {
    they_are_listed_only_when_they_are_asked_for
    they_go_whole_when_nobody_has_used_them
    a_lasting_session_stays
    one_that_is_in_use_stays
    one_that_waits_for_a_job_stays_until_the_job_is_over
    a_session_keeps_the_lifetime_that_it_was_created_with
}

type Store = Arc<dyn Everything>;

/// After everything that a test writes.
const LATER: i64 = 100_000;

async fn open_ephemeral(store: &Store, session: &str) -> OpenedLane {
    let opened =
        store.open_lane(&session.into(), SessionLifetime::Ephemeral, LaneClaim::free(BootId::new()), at(500)).await;
    opened.unwrap().opened().unwrap()
}

/// Ephemeral sessions used last before the date, and nothing else.
fn unused_since(ms: i64) -> Retention {
    Retention { ephemeral_before: Some(at(ms)), keys_before: at(0), ..Retention::default() }
}

/// Deletes until nothing more is deleted, two rows at a time, and returns the sum.
async fn prune(store: &Store, old: Retention) -> Removed {
    let mut all = Removed::default();
    for _ in 0..1_000 {
        let removed = store.prune(old, 2).await.unwrap();
        if removed.is_nothing() {
            return Removed { run_ids: Vec::new(), ..all };
        }
        all.add(removed);
    }
    panic!("it does not come to an end: {all:?}");
}

async fn keys(store: &Store, filter: SessionFilter) -> Vec<String> {
    store.ping().await.unwrap(); // reads come behind what was written
    let listed = store.sessions(filter).await.unwrap();
    listed.iter().map(|summary| summary.session.as_str().to_owned()).collect()
}

async fn they_are_listed_only_when_they_are_asked_for(store: Store) {
    for (session, ms) in [("one", 4_000), ("two", 3_000)] {
        let lease = open_ephemeral(&store, session).await.lease;
        accept(&*store, &lease, NewInput { at: at(ms), ..input("hi") }).await;
    }
    open(&*store, "lasting").await;
    assert_eq!(keys(&store, SessionFilter::lasting(1)).await, ["lasting"], "the limit counts what is listed");
    assert_eq!(keys(&store, SessionFilter::all(2)).await, ["one", "two"]);
    assert_eq!(keys(&store, SessionFilter::all(9)).await, ["one", "two", "lasting"]);
    let shown = |key: &'static str| {
        let store = store.clone();
        async move { store.session(&key.into()).await.unwrap().unwrap().lifetime }
    };
    assert_eq!(shown("one").await, SessionLifetime::Ephemeral);
    assert_eq!(shown("lasting").await, SessionLifetime::Lasting);
}

async fn they_go_whole_when_nobody_has_used_them(store: Store) {
    let lease = open_ephemeral(&store, "s").await.lease;
    for n in 0..3 {
        turn(&*store, &lease, &format!("question {n}")).await;
    }
    edit(&*store, &lease, ThreadEdit::New).await;
    turn(&*store, &lease, "another").await;
    let waited = accept(&*store, &lease, queued("never begun")).await;
    store.finish_runs(&lease, vec![FinishedRun { messages: Vec::new(), ..finished(waited, "") }]).await.unwrap();
    store.remember(new_note(&group("s"), "name", "Ann", 1_000)).await.unwrap();
    store.put_sealed(&lease.session, "token", vec![1], at(1_000)).await.unwrap();
    store.ping().await.unwrap();

    assert!(prune(&store, unused_since(3_000)).await.is_nothing(), "its second conversation began at 3000");
    let expected = store.prunable(unused_since(3_001)).await.unwrap();
    let removed = prune(&store, unused_since(3_001)).await;
    let whole = Removed { sessions: 1, threads: 2, messages: 8, runs: 5, notes: 1, secrets: 1, ..Removed::default() };
    for found in [&expected, &removed] {
        assert_eq!(Removed { events: 0, ..found.clone() }, whole);
    }
    assert!(store.prunable(unused_since(3_001)).await.unwrap().is_nothing());

    assert_eq!(store.session(&"s".into()).await.unwrap(), None);
    assert!(store.threads(&"s".into()).await.unwrap().is_empty());
    assert!(store.runs(belay_protocol::RunFilter::default()).await.unwrap().is_empty());
    assert!(store.recall(&group("s"), "", 9).await.unwrap().is_empty());
    assert_eq!(store.sealed(&"s".into(), "token").await.unwrap(), None);
    let outcome = store.accept(&lease, input("too late")).await;
    assert!(matches!(outcome, Err(StoreError::LeaseLost(_))), "{outcome:?}");
    assert!(open(&*store, "s").await.fresh);
}

async fn a_lasting_session_stays(store: Store) {
    let lease = open(&*store, "s").await.lease;
    turn(&*store, &lease, "hi").await;
    assert!(prune(&store, unused_since(LATER)).await.is_nothing());
    assert_eq!(keys(&store, SessionFilter::lasting(9)).await, ["s"]);
}

async fn one_that_is_in_use_stays(store: Store) {
    let waits = open_ephemeral(&store, "waits for a turn").await.lease;
    turn(&*store, &waits, "before").await;
    accept(&*store, &waits, queued("later")).await;
    let paused = open_ephemeral(&store, "waits for an approval").await.lease;
    let run = accept(&*store, &paused, input("may I?")).await;
    let approval = pause(&*store, &paused, run).await;
    let told = open_ephemeral(&store, "waits for a delivery").await.lease;
    let run = accept(&*store, &told, input("write to ann")).await;
    let message = Outbound { run_id: Some(run), ..outbound("c", "hello ann") };
    let id = message.id;
    let end = FinishedRun { said: vec![message], ..finished(run, "done") };
    store.finish_runs(&told, vec![end]).await.unwrap();
    let awake = open_ephemeral(&store, "awake").await.lease;
    turn(&*store, &awake, "hi").await;
    store.open_lane(&awake.session, SessionLifetime::Ephemeral, LaneClaim::free(awake.owner), at(6_000)).await.unwrap();

    store.ping().await.unwrap();
    assert!(store.prunable(unused_since(5_000)).await.unwrap().is_nothing());
    assert!(prune(&store, unused_since(5_000)).await.is_nothing());
    assert_eq!(keys(&store, SessionFilter::all(9)).await.len(), 4);
    assert_eq!(answer(&*store, approval.id, ApprovalState::Denied).await.id, approval.id);

    store.mark(id, OutboxState::Sent, at(0), None).await.unwrap();
    assert_eq!(prune(&store, unused_since(5_000)).await.sessions, 1, "the message is delivered");
    assert_eq!(store.session(&told.session).await.unwrap(), None);
}

async fn one_that_waits_for_a_job_stays_until_the_job_is_over(store: Store) {
    let lease = open_ephemeral(&store, "s").await.lease;
    turn(&*store, &lease, "/job count the stars").await;
    let new = NewJob { asked_in: "s".into(), ..job("ann") };
    let (id, caps) = (new.id, JobCaps { at_work: 9, at_work_each: 9, open_each: 9, open: 9 });
    store.create(new, caps).await.unwrap();
    assert!(store.prunable(unused_since(LATER)).await.unwrap().is_nothing());
    assert!(prune(&store, unused_since(LATER)).await.is_nothing());

    let (to, why) = (JobState::Cancelled, String::new());
    let over =
        JobChange { job: id, to, attempt: None, detail: why, result: None, notice: None, told_in: None, at: at(3_000) };
    store.change(over).await.unwrap();
    assert_eq!(prune(&store, unused_since(LATER)).await.sessions, 1);
}

async fn a_session_keeps_the_lifetime_that_it_was_created_with(store: Store) {
    let lease = open_ephemeral(&store, "s").await.lease;
    turn(&*store, &lease, "hi").await;
    open(&*store, "s").await;
    assert_eq!(keys(&store, SessionFilter::lasting(9)).await, Vec::<String>::new());
    let lease = open(&*store, "t").await.lease;
    turn(&*store, &lease, "hi").await;
    open_ephemeral(&store, "t").await;
    assert_eq!(keys(&store, SessionFilter::lasting(9)).await, ["t"]);
}
