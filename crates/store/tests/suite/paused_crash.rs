//! A daemon that dies around a question, or is told that the store failed.

use std::sync::Arc;

use belay_protocol::{
    ApprovalFilter, ApprovalState, ApprovalStore, Asker, Authority, Checkpoint, Decided, Durability, FinishedRun,
    JournalStore, Outbound, Outbox, OutboxState, PausedRun, Question, RunReader, RunStatus, RunStore, StoreError,
    StoreHealth, ThreadState,
};
use belay_protocol::{Message, RunId};
use belay_store::SqlStore;
use belay_testkit::faulty::{Fault, Faulty, StoreOp};
use serde_json::json;

use crate::crash::after_death;
use crate::kit::*;

#[tokio::test]
async fn a_paused_run_is_found_at_rest_with_its_question_and_goes_on_after_the_answer() {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    let run = accept(&store, &lease, input("push it")).await;
    let approval = approval(&lease, run);
    let question = Question { approval: approval.id, offers_always: true, decidable: true };
    let outbound = Outbound { run_id: Some(run), question: Some(question), ..outbound("c", "May I?") };
    let checkpoint =
        Checkpoint { state: Some(json!({"step": 2})), ..checkpoint(run, vec![Message::assistant("I will")]) };
    let pause = PausedRun { checkpoint, approval: approval.clone(), outbound: Some(outbound.clone()), callback: None };
    store.pause_run(&lease, pause).await.unwrap();

    let (after, copy) = after_death(&directory);
    let opened = open(&after, "s").await;
    assert_eq!(opened.thread.state, ThreadState::AwaitingApproval);
    let pending = &opened.unfinished[0];
    assert_eq!((pending.run_id, pending.status, &pending.approval), (run, RunStatus::Paused, &Some(approval.clone())));
    assert_eq!((&pending.state, texts(&pending.messages)), (&Some(json!({"step": 2})), vec!["push it", "I will"]));
    let due = after.due(at(0), &[], None, 10, 10).await.unwrap();
    assert_eq!(
        due.into_iter().map(|row| row.message).collect::<Vec<_>>(),
        std::slice::from_ref(&outbound),
        "it is asked once"
    );
    after.mark(outbound.id, OutboxState::Sending, at(0), None).await.unwrap();
    after.mark(outbound.id, OutboxState::Sent, at(0), None).await.unwrap();
    assert!(matches!(answer(&after, approval.id, ApprovalState::Approved).await.state, ApprovalState::Approved));

    // It dies again, between the answer and its use.
    let (third, _copy) = after_death(&copy);
    assert!(third.due(at(0), &[], None, 10, 10).await.unwrap().is_empty(), "and not asked again");
    let opened = open(&third, "s").await;
    let kept = opened.unfinished[0]
        .approval
        .as_ref()
        .map(|approval| (approval.id, approval.state, approval.decided_by.as_deref()));
    assert_eq!(kept, Some((approval.id, ApprovalState::Approved, Some("ann"))));
    third.start_run(&opened.lease, run, at(5_000)).await.unwrap();
    third.checkpoint(&opened.lease, using(run, vec![approval.id])).await.unwrap();
    third.finish_runs(&opened.lease, vec![finished(run, "pushed")]).await.unwrap();
    assert_eq!(third.approval(approval.id).await.unwrap().map(|approval| approval.state), Some(ApprovalState::Used));
    assert_eq!(texts(&open(&third, "s").await.thread.messages), ["push it", "I will", "begun", "pushed"]);
}

#[tokio::test]
async fn a_used_approval_is_on_disk_before_its_call_begins_whatever_the_checkpoint_says() {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    let run = accept(&store, &lease, input("hi")).await;
    let approval = approved(&store, &lease, run).await;
    let progress = using(run, vec![approval]);
    assert_eq!(progress.durability, Durability::Relaxed);
    store.checkpoint(&lease, progress).await.unwrap();

    let (after, _copy) = after_death(&directory);
    assert_eq!(after.approval(approval).await.unwrap().map(|approval| approval.state), Some(ApprovalState::Used));
    let opened = open(&after, "s").await;
    assert_eq!(texts(&opened.unfinished[0].messages), ["hi", "begun"]);
    after.start_run(&opened.lease, run, at(5_000)).await.unwrap();
    let again = after.checkpoint(&opened.lease, using(run, vec![approval])).await;
    assert!(matches!(again, Err(StoreError::NotFound(_))), "{again:?}");
}

#[tokio::test]
async fn what_was_granted_and_what_was_withdrawn_survives() {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    let run = accept(&store, &lease, input("hi")).await;
    let first = pause(&store, &lease, run).await.id;
    store.decide(first, ApprovalState::Approved, Some(Authority::Conversation), "ann", at(1_800)).await.unwrap();
    store.start_run(&lease, run, at(1_900)).await.unwrap();
    let second = pause(&store, &lease, run).await.id;
    store.finish_runs(&lease, vec![finished(run, "never mind")]).await.unwrap();

    let (after, _copy) = after_death(&directory);
    let ann = Asker { principal: "ann".into(), ..Asker::default() };
    assert!(after.granted(&"s".into(), "run_command", "git", &ann).await.unwrap());
    let states: Vec<_> =
        after.approvals_of(run).await.unwrap().into_iter().map(|approval| (approval.id, approval.state)).collect();
    assert_eq!(states, [(first, ApprovalState::Withdrawn), (second, ApprovalState::Withdrawn)]);
    let late = after.decide(second, ApprovalState::Approved, None, "ann", at(9_000)).await.unwrap();
    assert!(matches!(late, Decided::Before(approval) if approval.state == ApprovalState::Withdrawn));
}

/// The caller is dropped at its first wait: the writer may or may not have the job, but never half of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_whose_caller_is_gone_is_whole_or_not_there() {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    let run = accept(&store, &lease, input("hi")).await;
    let pause = PausedRun { outbound: Some(outbound("c", "May I?")), ..paused(approval(&lease, run)) };
    tokio::select! {
        biased;
        outcome = store.pause_run(&lease, pause) => outcome.unwrap(),
        () = std::future::ready(()) => {}
    }
    store.ping().await.unwrap();
    let (after, _copy) = after_death(&directory);
    let status = after.run(run).await.unwrap().unwrap().status;
    let questions = after.approvals(ApprovalFilter { waiting: true, ..ApprovalFilter::default() }).await.unwrap().len();
    let messages = after.due(at(0), &[], None, 10, 10).await.unwrap().len();
    let whole = (RunStatus::Paused, 1, 1);
    let nothing = (RunStatus::Running, 0, 0);
    assert!([whole, nothing].contains(&(status, questions, messages)), "{status:?} {questions} {messages}");
}

async fn faulty() -> (Faulty<SqlStore>, belay_protocol::Lease, RunId, tempfile::TempDir) {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    let run = accept(&store, &lease, input("hi")).await;
    (Faulty::new(Arc::new(store)), lease, run, directory)
}

#[tokio::test]
async fn a_caller_that_lost_an_answer_finds_out_by_asking_again() {
    let (store, lease, run, _directory) = faulty().await;
    let approval = approval(&lease, run);
    store.plan().nth_of(StoreOp::PauseRun, 1, Fault::LoseAnswer);
    assert!(store.pause_run(&lease, paused(approval.clone())).await.is_err());
    let again = store.pause_run(&lease, paused(approval.clone())).await;
    assert!(matches!(again, Err(StoreError::NotFound(_))), "it rests already: {again:?}");
    assert_eq!(store.approvals_of(run).await.unwrap(), std::slice::from_ref(&approval), "asked once");

    store.plan().nth_of(StoreOp::Decide, 1, Fault::LoseAnswer);
    assert!(store.decide(approval.id, ApprovalState::Approved, None, "ann", at(1_800)).await.is_err());
    let again = store.decide(approval.id, ApprovalState::Denied, None, "ann", at(1_900)).await.unwrap();
    assert!(matches!(&again, Decided::Before(kept) if kept.state == ApprovalState::Approved), "{again:?}");
}

#[tokio::test]
async fn a_pause_or_an_answer_that_fails_can_be_tried_again() {
    let (store, lease, run, _directory) = faulty().await;
    let approval = approval(&lease, run);
    store.plan().nth_of(StoreOp::PauseRun, 1, Fault::Fail);
    assert!(store.pause_run(&lease, paused(approval.clone())).await.is_err());
    assert_eq!(store.approvals_of(run).await.unwrap(), []);
    store.pause_run(&lease, paused(approval.clone())).await.unwrap();

    store.plan().nth_of(StoreOp::Decide, 1, Fault::Fail);
    assert!(store.decide(approval.id, ApprovalState::Denied, None, "ann", at(1_800)).await.is_err());
    assert_eq!(store.approval(approval.id).await.unwrap(), Some(approval.clone()), "nobody has answered");
    assert!(matches!(
        store.decide(approval.id, ApprovalState::Approved, None, "ann", at(1_900)).await.unwrap(),
        Decided::Now(_)
    ));
}

#[tokio::test]
async fn a_disk_that_is_full_leaves_the_run_at_work_and_the_question_unasked() {
    let (store, _directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    let run = accept(&store, &lease, input("hi")).await;
    store.set_max_pages(1).await.unwrap(); // SQLite takes this as: no more than there are
    let pause = || PausedRun { outbound: Some(outbound("c", &"x".repeat(100_000))), ..paused(approval(&lease, run)) };
    let outcome = store.pause_run(&lease, pause()).await;
    assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{outcome:?}");
    store.set_max_pages(1_000_000).await.unwrap();

    store.ping().await.unwrap();
    assert_eq!(store.run(run).await.unwrap().unwrap().status, RunStatus::Running);
    assert!(
        store.approvals_of(run).await.unwrap().is_empty()
            && store.due(at(0), &[], None, 10, 10).await.unwrap().is_empty()
    );
    store.pause_run(&lease, pause()).await.unwrap();
    let end = FinishedRun { outbound: Some(outbound("d", "bye")), ..finished(run, "bye") };
    store.finish_runs(&lease, vec![end]).await.unwrap();
    assert_eq!(store.due(at(0), &[], None, 10, 10).await.unwrap().len(), 2);
}
