//! A daemon that dies. Its files are copied while it is at work, which is what the next start would find: everything
//! committed is in the database file or its log, and nothing else is.

use std::path::Path;

use belay_protocol::{
    Acceptance, BootId, CollectedStart, Durability, FinishedRun, JoinedRun, LaneClaim, Lease, Message, NewInput,
    OutboxState, Purpose, RunStatus, SessionKey, SessionLifetime, StoreError, ThreadEdit, ThreadState,
};
use belay_protocol::{JournalStore, LaneStore, Outbox, RunReader, RunStore, SpendLedger, StoreHealth};
use belay_store::{SqlStore, StoreOptions};
use serde_json::json;
use tempfile::TempDir;

use crate::kit::*;

/// What a start after the death of this store finds.
pub(crate) fn after_death(directory: &TempDir) -> (SqlStore, TempDir) {
    let copy = tempfile::tempdir().unwrap();
    for name in ["belay.db", "belay.db-wal"] {
        let from = directory.path().join(name);
        if from.exists() {
            std::fs::copy(from, copy.path().join(name)).unwrap();
        }
    }
    (reopen(copy.path()), copy)
}

fn reopen(directory: &Path) -> SqlStore {
    SqlStore::open(&directory.join("belay.db"), StoreOptions::default()).unwrap()
}

fn committed(run: belay_protocol::RunId, messages: Vec<Message>) -> belay_protocol::Checkpoint {
    belay_protocol::Checkpoint { durability: Durability::Committed, ..checkpoint(run, messages) }
}

#[tokio::test]
async fn an_acknowledged_message_survives_the_death_of_the_daemon() {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    let message = NewInput { key: Some(key("m")), reply_to: Some(route("c")), ..queued("hi") };
    let run = accept(&store, &lease, message).await;

    let (after, _copy) = after_death(&directory);
    assert_eq!(unfinished_sessions(&after).await, [SessionKey::new("s")]);
    let opened = open(&after, "s").await;
    assert_eq!(opened.unfinished.len(), 1);
    let pending = &opened.unfinished[0];
    assert_eq!((pending.run_id, pending.text.as_str(), pending.status), (run, "hi", RunStatus::Queued));
    assert_eq!(pending.reply_to, Some(route("c")));
    let again = NewInput { key: Some(key("m")), ..queued("hi") };
    let outcome = after.accept(&opened.lease, again).await.unwrap();
    assert!(matches!(outcome, Acceptance::Known(known) if known.run_id == run), "the platform delivers it again");
}

#[tokio::test]
async fn a_run_is_found_where_its_last_checkpoint_left_it() {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    turn(&store, &lease, "earlier").await;
    let run = accept(&store, &lease, input("hi")).await;
    let progress = belay_protocol::Checkpoint {
        state: Some(json!({"step": 2})),
        ..committed(run, vec![Message::assistant("one"), Message::user("nudge").for_run()])
    };
    store.checkpoint(&lease, progress).await.unwrap();

    let (after, _copy) = after_death(&directory);
    let opened = open(&after, "s").await;
    assert_eq!(opened.thread.state, ThreadState::Processing);
    assert_eq!(texts(&opened.thread.messages), ["earlier", "re: earlier"]);
    let pending = &opened.unfinished[0];
    assert_eq!((pending.status, pending.attempt, &pending.state), (RunStatus::Running, 1, &Some(json!({"step": 2}))));
    assert_eq!(texts(&pending.messages), ["hi", "one", "nudge"]);

    after.start_run(&opened.lease, run, at(5_000)).await.unwrap();
    after.finish_runs(&opened.lease, vec![finished(run, "yo")]).await.unwrap();
    assert_eq!(after.run(run).await.unwrap().map(|run| (run.attempt, run.status)), Some((2, RunStatus::Completed)));
    assert_eq!(texts(&open(&after, "s").await.thread.messages), ["earlier", "re: earlier", "hi", "one", "yo"]);
}

#[tokio::test]
async fn the_dead_owners_lease_is_refused_once_the_new_boot_has_the_lane() {
    let (store, directory) = sqlite();
    let dead = open(&store, "s").await.lease;
    let run = accept(&store, &dead, input("hi")).await;

    let (after, _copy) = after_death(&directory);
    let living = after
        .open_lane(&dead.session, SessionLifetime::Lasting, LaneClaim::free(BootId::new()), at(5_000))
        .await
        .unwrap()
        .opened()
        .unwrap()
        .lease;
    assert_eq!(living.epoch, dead.epoch + 1);
    let disguised = Lease { owner: living.owner, ..dead.clone() };
    for lease in [&dead, &disguised] {
        let outcome = after.finish_runs(lease, vec![finished(run, "late")]).await;
        assert!(matches!(outcome, Err(StoreError::LeaseLost(_))), "{outcome:?}");
    }
    after.finish_runs(&living, vec![finished(run, "in time")]).await.unwrap();
}

#[tokio::test]
async fn a_reply_is_committed_with_the_end_of_its_turn_and_not_sent_twice() {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    for text in ["one", "two"] {
        let run = accept(&store, &lease, input(text)).await;
        let reply = FinishedRun { outbound: Some(outbound(text, text)), ..finished(run, text) };
        store.finish_runs(&lease, vec![reply]).await.unwrap();
    }
    let sending = store.due(at(0), &[], None, 1, 1).await.unwrap().remove(0).message.id;
    store.mark(sending, OutboxState::Sending, at(0), None).await.unwrap();

    let (after, _copy) = after_death(&directory);
    assert!(unfinished_sessions(&after).await.is_empty());
    let settled = after.settle_interrupted(at(0), None, &[]).await.unwrap();
    assert_eq!(settled.iter().map(|row| row.message.id).collect::<Vec<_>>(), [sending]);
    let due = after.due(at(0), &[], None, 10, 10).await.unwrap();
    assert_eq!(due.iter().map(|row| row.message.text.as_str()).collect::<Vec<_>>(), ["two"]);
}

/// A message that has joined another run is answered by that one alone: neither before nor after a crash by both.
#[tokio::test]
async fn a_message_that_joined_another_run_is_not_taken_up_again() {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    let first = accept(&store, &lease, queued("one")).await;
    let second = accept(&store, &lease, queued("two")).await;
    let (before, _copy) = after_death(&directory);
    assert_eq!(open(&before, "s").await.unfinished.len(), 2, "until then both are to be answered");

    let joined = vec![JoinedRun { run: first, how: "collect", at: at(1_500) }];
    store
        .start_together(
            &lease,
            CollectedStart { run: second, text: "one, two".into(), provenance: None, joined, at: at(1_500) },
        )
        .await
        .unwrap();
    let third = accept(&store, &lease, queued("three")).await;
    let steer = belay_protocol::Checkpoint {
        joined: vec![JoinedRun { run: third, how: "steer", at: at(1_600) }],
        ..checkpoint(second, vec![Message::user("three")])
    };
    assert_eq!(steer.durability, Durability::Relaxed);
    store.checkpoint(&lease, steer).await.unwrap();

    let (after, _copy) = after_death(&directory);
    let opened = open(&after, "s").await;
    let pending: Vec<_> = opened.unfinished.iter().map(|run| (run.run_id, texts(&run.messages))).collect();
    assert_eq!(pending, [(second, vec!["one, two", "three"])]);
    for run in [first, third] {
        assert_eq!(after.run(run).await.unwrap().map(|run| run.status), Some(RunStatus::Completed));
    }
}

#[tokio::test]
async fn a_crash_during_a_call_counts_its_reservation_as_spent() {
    let (store, directory) = sqlite();
    store.reserve(reservation(belay_protocol::RunId::new(), Purpose::Job, 3, 500)).await.unwrap();
    let (after, _copy) = after_death(&directory);
    let spent = after.spent(3).await.unwrap();
    assert_eq!((spent.of(Purpose::Job), spent.total()), (500, 500));
}

#[tokio::test]
async fn what_is_undone_stays_undone_and_can_be_redone_after_a_restart() {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    turn(&store, &lease, "a").await;
    turn(&store, &lease, "b").await;
    edit(&store, &lease, ThreadEdit::Undo).await;

    let (after, _copy) = after_death(&directory);
    let opened = open(&after, "s").await;
    assert_eq!(texts(&opened.thread.messages), ["a", "re: a"]);
    assert_eq!(texts(&edit(&after, &opened.lease, ThreadEdit::Redo).await.messages), ["a", "re: a", "b", "re: b"]);
}

/// Relaxed work may be lost by a crash, but what was written after it never survives without it.
#[tokio::test]
async fn relaxed_work_is_on_disk_with_whatever_is_committed_after_it() {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    let run = accept(&store, &lease, queued("hi")).await;
    store.start_run(&lease, run, at(1_500)).await.unwrap();
    store.checkpoint(&lease, checkpoint(run, vec![Message::assistant("one")])).await.unwrap();
    let other = open(&store, "t").await.lease;
    accept(&store, &other, queued("another session commits")).await;

    let (after, _copy) = after_death(&directory);
    assert_eq!(texts(&open(&after, "s").await.unfinished[0].messages), ["hi", "one"]);
}

/// Waits for real: the writing thread keeps time by itself, without a runtime whose clock could be paused.
#[tokio::test]
async fn relaxed_work_reaches_the_disk_by_itself() {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    let run = accept(&store, &lease, queued("hi")).await;
    store.start_run(&lease, run, at(1_500)).await.unwrap();
    let mut status = RunStatus::Queued;
    for _ in 0..6_000 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        status = store.run(run).await.unwrap().unwrap().status;
        if status == RunStatus::Running {
            break;
        }
    }
    assert_eq!(status, RunStatus::Running);
    let (after, _copy) = after_death(&directory);
    assert_eq!(texts(&open(&after, "s").await.unfinished[0].messages), ["hi"]);
}

#[tokio::test]
async fn a_closed_store_has_everything_in_its_file_and_takes_nothing_more() {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    let run = accept(&store, &lease, queued("hi")).await;
    store.start_run(&lease, run, at(1_500)).await.unwrap(); // not committed yet
    let clone = store.clone();
    store.close().await;
    for outcome in [clone.ping().await, clone.run(run).await.map(|_| ()), store.ping().await] {
        assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{outcome:?}");
    }
    store.close().await; // again: nothing happens
    let log = directory.path().join("belay.db-wal");
    assert!(!log.exists() || log.metadata().unwrap().len() == 0);

    let after = reopen(directory.path());
    assert_eq!(texts(&open(&after, "s").await.unfinished[0].messages), ["hi"]);
}
