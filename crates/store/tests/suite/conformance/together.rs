//! Messages that become part of another one's turn, and what messages and sessions ask of their runs.

use std::sync::Arc;

use belay_protocol::store::{input_digest, joined_end};
use belay_protocol::{
    Checkpoint, CollectedStart, EditedMessage, EventKind, JoinedRun, LaneClaim, Message, NewEvent, NewInput,
    Provenance, QueueMode, RunId, RunOptions, RunStatus, SessionLifetime, StopReason, StoreError, Thinking,
    ThreadState,
};

use crate::kit::*;

super::for_every_store! {
    messages_that_wait_together_get_one_turn_and_end_with_its_beginning
    a_message_that_steers_ends_with_the_step_that_it_joins
    a_run_that_has_ended_before_is_joined_to_nothing
    a_run_that_nobody_knows_joins_nothing_and_nothing_else_happens
    only_a_run_that_never_began_begins_together
    an_old_lease_joins_nothing
    what_a_message_asks_comes_back_with_its_run
    what_a_session_asks_outlasts_its_owner
    facts_of_a_message_are_behind_its_acceptance
    a_thread_is_fresh_until_something_is_said_in_it
    an_edit_replaces_a_message_that_never_began_and_no_other
    an_edit_is_compared_with_its_message_also_where_that_came_without_a_key
}

fn joined(run: RunId, how: &'static str) -> JoinedRun {
    JoinedRun { run, how, at: at(1_600) }
}

fn together(run: RunId, text: &str, others: &[RunId]) -> CollectedStart {
    let joined = others.iter().map(|run| joined(*run, "collect")).collect();
    CollectedStart { run, text: text.into(), provenance: None, joined, at: at(1_600) }
}

/// The facts of a run that has become part of another one.
fn ended_in(into: RunId, how: &str) -> EventKind {
    let end = joined_end(into, how);
    EventKind::RunEnded { status: end.reason.status(), reason: end.reason, evidence: end.evidence }
}

async fn messages_that_wait_together_get_one_turn_and_end_with_its_beginning(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    let [one, two, three] = [
        accept(&*store, &lease, queued("one")).await,
        accept(&*store, &lease, queued("two")).await,
        accept(&*store, &lease, queued("three")).await,
    ];
    store.start_together(&lease, together(three, "one\ntwo\nthree", &[one, two])).await.unwrap();

    let opened = reload(&*store, &mut lease).await;
    assert_eq!(opened.thread.state, ThreadState::Processing);
    let [pending] = &opened.unfinished[..] else { panic!("one run is left: {:?}", opened.unfinished) };
    assert_eq!((pending.run_id, pending.status, pending.attempt), (three, RunStatus::Running, 1));
    assert_eq!(texts(&pending.messages), ["one\ntwo\nthree"]);
    assert_eq!(pending.text, "one\ntwo\nthree", "an attempt that begins again says the same");
    for run in [one, two] {
        let record = store.run(run).await.unwrap().unwrap();
        let end = joined_end(three, "collect");
        assert_eq!((record.status, record.reason), (RunStatus::Completed, Some(StopReason::Joined)));
        assert_eq!((record.evidence, record.reply, record.ended_at), (end.evidence, None, Some(at(1_600))));
        assert_eq!(kinds(&*store, run).await, [EventKind::RunAccepted, ended_in(three, "collect")]);
    }
    store.finish_runs(&lease, vec![finished(three, "all three")]).await.unwrap();
    assert_eq!(texts(&open(&*store, "s").await.thread.messages), ["one\ntwo\nthree", "all three"]);
}

async fn a_message_that_steers_ends_with_the_step_that_it_joins(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, input("write it")).await;
    let steer = accept(&*store, &lease, queued("in French")).await;
    let step = Checkpoint {
        joined: vec![joined(steer, "steer")],
        ..checkpoint(run, vec![belay_protocol::Message::user("in French")])
    };
    store.checkpoint(&lease, step).await.unwrap();
    // A second step that names it again changes nothing: its answer is in the first one.
    let again = Checkpoint { joined: vec![joined(steer, "collect")], ..checkpoint(run, Vec::new()) };
    store.checkpoint(&lease, again).await.unwrap();

    assert_eq!(kinds(&*store, steer).await, [EventKind::RunAccepted, ended_in(run, "steer")]);
    assert!(!kinds(&*store, run).await.contains(&ended_in(run, "steer")));
    store.finish_runs(&lease, vec![finished(run, "voilà")]).await.unwrap();
    let opened = open(&*store, "s").await;
    assert!(opened.unfinished.is_empty());
    assert_eq!(texts(&opened.thread.messages), ["write it", "in French", "voilà"]);
}

async fn a_run_that_has_ended_before_is_joined_to_nothing(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let ended = turn(&*store, &lease, "earlier").await;
    let before = store.run(ended).await.unwrap();
    let run = accept(&*store, &lease, queued("now")).await;
    store.start_together(&lease, together(run, "now", &[ended])).await.unwrap();
    store.ping().await.unwrap();
    assert_eq!(store.run(ended).await.unwrap(), before);
}

async fn a_run_that_nobody_knows_joins_nothing_and_nothing_else_happens(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, queued("now")).await;
    let known = accept(&*store, &lease, queued("and then")).await;
    let other = open(&*store, "t").await.lease;
    let foreign = accept(&*store, &other, queued("elsewhere")).await;
    for unknown in [RunId::new(), foreign] {
        let outcome = store.start_together(&lease, together(run, "both", &[known, unknown])).await;
        assert!(matches!(outcome, Err(StoreError::NotFound(_))), "{outcome:?}");
    }
    let opened = reload(&*store, &mut lease).await;
    let waiting: Vec<_> = opened.unfinished.iter().map(|run| (run.text.as_str(), run.status)).collect();
    assert_eq!(waiting, [("now", RunStatus::Queued), ("and then", RunStatus::Queued)]);

    store.start_run(&lease, run, at(1_500)).await.unwrap();
    let step = Checkpoint { joined: vec![joined(RunId::new(), "steer")], ..checkpoint(run, Vec::new()) };
    let outcome = store.checkpoint(&lease, step).await;
    assert!(matches!(outcome, Err(StoreError::NotFound(_))), "{outcome:?}");
    assert_eq!(kinds(&*store, foreign).await, [EventKind::RunAccepted]);
}

async fn only_a_run_that_never_began_begins_together(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let ended = turn(&*store, &lease, "earlier").await;
    let running = accept(&*store, &lease, input("now")).await;
    let waiting = accept(&*store, &lease, queued("later")).await;
    for run in [ended, running, RunId::new()] {
        let outcome = store.start_together(&lease, together(run, "both", &[waiting])).await;
        assert!(matches!(outcome, Err(StoreError::NotFound(_))), "{outcome:?}");
    }
    store.ping().await.unwrap();
    assert_eq!(store.run(waiting).await.unwrap().map(|run| run.status), Some(RunStatus::Queued));
}

async fn an_old_lease_joins_nothing(store: Shared) {
    let old = open(&*store, "s").await.lease;
    let run = accept(&*store, &old, queued("one")).await;
    let other = accept(&*store, &old, queued("two")).await;
    let new = open(&*store, "s").await.lease;
    let asked = RunOptions { verbose: Some(true), ..RunOptions::default() };
    let outcomes =
        [store.start_together(&old, together(run, "both", &[other])).await, store.set_options(&old, asked).await];
    for outcome in outcomes {
        assert!(matches!(&outcome, Err(StoreError::LeaseLost(session)) if session.as_str() == "s"), "{outcome:?}");
    }
    let opened = store
        .open_lane(&new.session, SessionLifetime::Lasting, LaneClaim::free(new.owner), at(500))
        .await
        .unwrap()
        .opened()
        .unwrap();
    assert!(opened.options.is_default());
    assert!(opened.unfinished.iter().all(|run| run.status == RunStatus::Queued), "{:?}", opened.unfinished);
}

async fn what_a_message_asks_comes_back_with_its_run(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    let asked = RunOptions {
        queue: Some(QueueMode::Collect),
        thinking: Some(Thinking::High),
        model: Some("large".into()),
        timeout_ms: Some(0),
        extra_prompt: Some("Be \"brief\".".into()),
        ..RunOptions::default()
    };
    accept(&*store, &lease, NewInput { options: asked.clone(), ..input("hi") }).await;
    accept(&*store, &lease, queued("nothing asked")).await;
    let opened = reload(&*store, &mut lease).await;
    let options: Vec<_> = opened.unfinished.into_iter().map(|run| run.options).collect();
    assert_eq!(options, [asked, RunOptions::default()]);
}

async fn what_a_session_asks_outlasts_its_owner(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    let asked = RunOptions { queue: Some(QueueMode::Interrupt), verbose: Some(false), ..RunOptions::default() };
    for options in [asked, RunOptions::default()] {
        store.set_options(&lease, options.clone()).await.unwrap();
        assert_eq!(reload(&*store, &mut lease).await.options, options);
        assert!(open(&*store, "t").await.options.is_default(), "another session asks for itself");
    }
}

async fn facts_of_a_message_are_behind_its_acceptance(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let message = queued("hi");
    let fact = EventKind::Queued { mode: "collect".into(), before: 2 };
    let event = NewEvent {
        at: at(1_000),
        session: Some(lease.session.clone()),
        run_id: Some(message.run_id),
        kind: fact.clone(),
    };
    let run = accept(&*store, &lease, NewInput { events: vec![event.clone()], key: Some(key("m")), ..message }).await;
    assert_eq!(kinds(&*store, run).await, [EventKind::RunAccepted, fact]);
    let again = NewInput { events: vec![event], key: Some(key("m")), ..queued("hi") };
    store.accept(&lease, again).await.unwrap();
    assert_eq!(kinds(&*store, run).await.len(), 2, "a duplicate brings no facts");
}

async fn a_thread_is_fresh_until_something_is_said_in_it(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    assert!(reload(&*store, &mut lease).await.fresh);
    let run = accept(&*store, &lease, queued("hi")).await;
    assert!(!reload(&*store, &mut lease).await.fresh, "something waits to be said");
    store.start_run(&lease, run, at(1_500)).await.unwrap();
    store.finish_runs(&lease, vec![finished(run, "yo")]).await.unwrap();
    assert!(!reload(&*store, &mut lease).await.fresh);
    edit(&*store, &lease, belay_protocol::ThreadEdit::New).await;
    assert!(reload(&*store, &mut lease).await.fresh);
}

/// A message with an id of its platform.
fn numbered(text: &str, id: &str) -> NewInput {
    let provenance =
        Provenance { message_id: Some(id.into()), forwarded_from: Some("Carl".into()), ..Provenance::default() };
    NewInput { provenance: Some(Arc::new(provenance)), key: Some(key(id)), ..queued(text) }
}

async fn an_edit_replaces_a_message_that_never_began_and_no_other(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, numbered("wrong", "7")).await;
    let known = store.sent_message(&lease.session, "7").await.unwrap().expect("known");
    assert_eq!((known.known.run_id, known.edited.clone()), (run, None));
    assert!(known.says(&input_digest("wrong")) && !known.says(&input_digest("right")));
    assert_eq!(store.sent_message(&lease.session, "8").await.unwrap(), None);
    assert_eq!(store.sent_message(&"another".into(), "7").await.unwrap(), None);
    let provenance = numbered("", "7").provenance;
    let edited =
        || EditedMessage { run, text: "right".into(), provenance: provenance.clone(), digest: input_digest("right") };
    store.replace_message(&lease, edited()).await.unwrap();
    let pending = reload(&*store, &mut lease).await.unfinished.remove(0);
    assert_eq!((&*pending.text, &pending.provenance), ("right", &provenance));
    store.start_run(&lease, run, at(1_500)).await.unwrap();
    let error = store.replace_message(&lease, edited()).await.unwrap_err();
    assert!(matches!(error, StoreError::NotFound(_)), "{error}");
    let begun = reload(&*store, &mut lease).await.unfinished.remove(0);
    assert_eq!(*begun.messages[0].1, Message::sent("right", provenance));
    assert!(begun.messages[0].1.untrusted, "a forward brings the words of somebody else");
    let known = store.sent_message(&lease.session, "7").await.unwrap().expect("known");
    assert!(known.says(&input_digest("wrong")) && known.says(&input_digest("right")));
}

async fn an_edit_is_compared_with_its_message_also_where_that_came_without_a_key(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    accept(&*store, &lease, NewInput { key: None, ..numbered("as it was", "7") }).await;
    let known = store.sent_message(&lease.session, "7").await.unwrap().expect("known");
    assert!(known.says(&input_digest("as it was")) && !known.says(&input_digest("another")));
}
