//! Requests that two persons must approve.

use belay_protocol::{
    ApprovalFilter, ApprovalRequest, ApprovalState, AskedIn, Asker, Decided, EventKind, FirstYes, SecondYes,
};

use crate::kit::*;

super::for_every_store! {
    the_first_yes_is_kept_with_the_question_for_the_second_person
    no_second_yes_counts_without_a_first
}

fn asked_in() -> AskedIn {
    AskedIn {
        work: "A request of ann".into(),
        session: "bob".into(),
        route: Some(route("bob")),
        asker: Asker::default(),
        in_place: false,
    }
}

fn first() -> SecondYes {
    let first = FirstYes { by: "ann".into(), person: "telegram:1".into(), at: at(1_800) };
    SecondYes { first: Some(first), place: Some(asked_in()) }
}

/// A run that waits for two approvals.
async fn waiting(store: &dyn Store) -> ApprovalRequest {
    let lease = open(store, "s").await.lease;
    let run = accept(store, &lease, input("hi")).await;
    let approval = ApprovalRequest { second: Some(Box::default()), ..approval(&lease, run) };
    store.pause_run(&lease, paused(approval.clone())).await.unwrap();
    approval
}

async fn the_first_yes_is_kept_with_the_question_for_the_second_person(store: Shared) {
    let asked = waiting(&*store).await;
    let question = outbound("bob", "May I?");
    let stored = store.first_yes(asked.id, first(), at(9_000), Some(question.clone())).await.unwrap();
    let expected = ApprovalRequest { second: Some(Box::new(first())), expires_at: at(9_000), ..asked.clone() };
    assert_eq!(stored, Decided::Now(Box::new(expected.clone())));
    assert_eq!(store.approval(asked.id).await.unwrap(), Some(expected.clone()));
    let due = store.due(at(2_000), &[], None, 10, 10).await.unwrap();
    assert_eq!(due.into_iter().map(|row| row.message).collect::<Vec<_>>(), [question]);
    let filter = ApprovalFilter { session: Some("bob".into()), waiting: true, ..ApprovalFilter::default() };
    assert_eq!(store.approvals(filter).await.unwrap(), std::slice::from_ref(&expected), "found where it is asked now");
    let given = EventKind::ApprovalFirstYes { approval: asked.id, actor: "ann".into() };
    assert_eq!(kinds(&*store, asked.run_id).await.last(), Some(&given));

    let again = store.first_yes(asked.id, first(), at(9_999), Some(outbound("bob", "May I?"))).await.unwrap();
    assert_eq!(again, Decided::Before(Box::new(expected)), "only one first approval counts");
    assert_eq!(store.due(at(2_000), &[], None, 10, 10).await.unwrap().len(), 1);
    assert_eq!(answer(&*store, asked.id, ApprovalState::Approved).await.state, ApprovalState::Approved);
}

async fn no_second_yes_counts_without_a_first(store: Shared) {
    let asked = waiting(&*store).await;
    let decided = store.decide(asked.id, ApprovalState::Approved, None, "bob", at(1_800)).await.unwrap();
    assert_eq!(decided, Decided::Before(Box::new(asked.clone())));
    let decided = store.decide(asked.id, ApprovalState::Denied, None, "bob", at(1_800)).await.unwrap();
    assert!(matches!(decided, Decided::Now(approval) if approval.state == ApprovalState::Denied), "one no is enough");

    let lease = open(&*store, "other").await.lease;
    let run = accept(&*store, &lease, input("hi")).await;
    let one = pause(&*store, &lease, run).await;
    let stored = store.first_yes(one.id, first(), at(9_000), None).await.unwrap();
    assert_eq!(stored, Decided::Before(Box::new(one)), "it needs one approval alone");
}
