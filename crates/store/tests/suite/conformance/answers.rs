//! Answers, what they grant, and approvals that are used.

use belay_protocol::{
    ApprovalFilter, ApprovalId, ApprovalRequest, ApprovalState, Asker, Authority, Decided, EventKind, Message,
    NewInput, RunId, RunStatus, SessionKey, StoreError,
};
use tokio::task::JoinSet;

use crate::kit::*;

super::for_every_store! {
    an_answer_is_kept_with_who_gave_it_and_told_as_a_fact
    only_the_first_answer_counts
    of_sixteen_answers_at_once_one_counts
    a_state_that_is_no_answer_is_refused
    always_covers_the_like_in_its_session_until_it_is_taken_back
    an_always_serves_those_who_could_have_answered_the_question
    what_is_not_an_offered_yes_grants_nothing
    one_approval_allows_one_call
    an_approval_that_does_not_stand_lets_nothing_be_written
    questions_are_listed_newest_first_and_filtered
}

use ApprovalState::{Approved, Denied, Expired, Used, Waiting, Withdrawn};

/// An "always" of a person in the conversation.
const ALWAYS: Option<Authority> = Some(Authority::Conversation);

/// The person whose run asks in these tests.
fn ann() -> Asker {
    person("ann", Authority::Conversation)
}

fn person(principal: &str, authority: Authority) -> Asker {
    Asker { principal: principal.into(), authority, relayed: false }
}

async fn an_answer_is_kept_with_who_gave_it_and_told_as_a_fact(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    for (state, by) in [(Approved, "ann"), (Denied, "operator"), (Expired, "")] {
        let run = accept(&*store, &lease, input("hi")).await;
        let asked = pause(&*store, &lease, run).await;
        let outcome = store.decide(asked.id, state, None, by, at(1_800)).await.unwrap();
        let expected = ApprovalRequest { state, decided_by: Some(by.into()), decided_at: Some(at(1_800)), ..asked };
        assert_eq!(outcome, Decided::Now(Box::new(expected.clone())));
        assert_eq!(store.approval(expected.id).await.unwrap(), Some(expected.clone()));
        let told = EventKind::ApprovalResolved { approval: expected.id, state: state.word().into(), actor: by.into() };
        assert_eq!(kinds(&*store, run).await.last(), Some(&told));
        assert_eq!(store.run(run).await.unwrap().unwrap().status, RunStatus::Queued, "its lane takes it up, not we");
    }
}

async fn only_the_first_answer_counts(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    for first in [Approved, Denied, Expired] {
        let run = accept(&*store, &lease, input("hi")).await;
        let asked = pause(&*store, &lease, run).await;
        let kept = answer(&*store, asked.id, first).await;
        let events = kinds(&*store, run).await;
        for second in [Approved, Denied, Expired] {
            let outcome = store.decide(asked.id, second, ALWAYS, "bob", at(1_900)).await.unwrap();
            assert_eq!(outcome, Decided::Before(Box::new(kept.clone())), "{first:?}, then {second:?}");
        }
        assert_eq!(kinds(&*store, run).await, events);
    }
    assert!(!store.granted(&"s".into(), "run_command", "git", &ann()).await.unwrap(), "nor does a late \"always\"");
    let unknown = store.decide(ApprovalId::new(), Approved, ALWAYS, "bob", at(1_900)).await.unwrap();
    assert_eq!(unknown, Decided::Unknown);
}

async fn of_sixteen_answers_at_once_one_counts(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, input("hi")).await;
    let asked = pause(&*store, &lease, run).await;
    let mut answers = JoinSet::new();
    for n in 0..16 {
        let (store, id) = (store.clone(), asked.id);
        let state = [Approved, Denied, Expired][n % 3];
        answers.spawn(async move { store.decide(id, state, ALWAYS, &n.to_string(), at(1_800)).await.unwrap() });
    }
    let outcomes = answers.join_all().await;
    let won: Vec<&ApprovalRequest> = outcomes
        .iter()
        .filter_map(|outcome| if let Decided::Now(approval) = outcome { Some(&**approval) } else { None })
        .collect();
    let [won] = won[..] else { panic!("one answer counts: {won:?}") };
    for outcome in &outcomes {
        let (Decided::Now(approval) | Decided::Before(approval)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(**approval, *won, "everybody is told the same");
    }
    assert_eq!(store.approval(asked.id).await.unwrap().as_ref(), Some(won));
    let told = kinds(&*store, run).await;
    assert_eq!(told.iter().filter(|kind| matches!(kind, EventKind::ApprovalResolved { .. })).count(), 1);
    assert_eq!(store.granted(&"s".into(), "run_command", "git", &ann()).await.unwrap(), won.state == Approved);
}

async fn a_state_that_is_no_answer_is_refused(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, input("hi")).await;
    let asked = pause(&*store, &lease, run).await;
    for state in [Waiting, Used, Withdrawn] {
        let outcome = store.decide(asked.id, state, ALWAYS, "ann", at(1_800)).await;
        assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{outcome:?}");
    }
    assert_eq!(store.approval(asked.id).await.unwrap(), Some(asked));
}

async fn always_covers_the_like_in_its_session_until_it_is_taken_back(store: Shared) {
    for (session, covers) in [("s", "git"), ("s", "git"), ("s", "ls"), ("t", "git")] {
        let lease = open(&*store, session).await.lease;
        let run = accept(&*store, &lease, input("hi")).await;
        let approval = ApprovalRequest { covers: Some(covers.into()), ..approval(&lease, run) };
        store.pause_run(&lease, paused(approval.clone())).await.unwrap();
        store.decide(approval.id, Approved, ALWAYS, "ann", at(1_800)).await.unwrap();
    }
    let granted = async |session: &str, tool: &str, covers: &str| {
        store.granted(&session.into(), tool, covers, &ann()).await.unwrap()
    };
    for (session, tool, covers, expected) in [
        ("s", "run_command", "git", true),
        ("s", "run_command", "ls", true),
        ("t", "run_command", "git", true),
        ("t", "run_command", "ls", false),
        ("u", "run_command", "git", false),
        ("s", "write_file", "git", false),
        ("s", "run_command", "gi", false),
        ("s", "run_command", "GIT", false),
        ("s", "run_command", "", false),
    ] {
        assert_eq!(granted(session, tool, covers).await, expected, "{session} {tool} {covers}");
    }
    assert_eq!(store.forget_grants(&"s".into()).await.unwrap(), 2);
    assert_eq!(store.forget_grants(&"s".into()).await.unwrap(), 0);
    assert!(!granted("s", "run_command", "git").await);
    assert!(granted("t", "run_command", "git").await);
}

async fn an_always_serves_those_who_could_have_answered_the_question(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let others = [
        ann(),
        Asker { relayed: true, ..ann() },
        person("webhook", Authority::Conversation),
        person("script", Authority::Token),
        person("robot", Authority::Token),
        person("root", Authority::Operator),
    ];
    for (covers, asker, by, expected) in [
        ("for ann", ann(), ann(), [true, false, false, true, true, true]),
        ("by root", ann(), person("root", Authority::Operator), [true, false, false, true, true, true]),
        (
            "for a program",
            person("script", Authority::Token),
            person("script", Authority::Token),
            [false, false, false, true, false, true],
        ),
        (
            "for root",
            person("root", Authority::Operator),
            person("root", Authority::Operator),
            [false, false, false, false, false, true],
        ),
    ] {
        let run = accept(&*store, &lease, input("hi")).await;
        let approval = ApprovalRequest { covers: Some(covers.into()), asker, ..approval(&lease, run) };
        store.pause_run(&lease, paused(approval.clone())).await.unwrap();
        store.decide(approval.id, Approved, Some(by.authority), &by.principal, at(1_800)).await.unwrap();
        for (work_for, expected) in others.iter().zip(expected) {
            let granted = store.granted(&"s".into(), "run_command", covers, work_for).await.unwrap();
            assert_eq!(granted, expected, "{covers} {work_for:?}");
        }
    }
}

async fn what_is_not_an_offered_yes_grants_nothing(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    for (state, always, covers) in [
        (Approved, false, Some("git")),
        (Denied, true, Some("git")),
        (Expired, true, Some("git")),
        (Approved, true, None),
    ] {
        let run = accept(&*store, &lease, input("hi")).await;
        let approval = ApprovalRequest { covers: covers.map(Into::into), ..approval(&lease, run) };
        store.pause_run(&lease, paused(approval.clone())).await.unwrap();
        store.decide(approval.id, state, always.then_some(Authority::Conversation), "ann", at(1_800)).await.unwrap();
    }
    for covers in ["git", ""] {
        assert!(!store.granted(&"s".into(), "run_command", covers, &ann()).await.unwrap());
    }
    assert_eq!(store.forget_grants(&"s".into()).await.unwrap(), 0);
}

async fn one_approval_allows_one_call(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, input("hi")).await;
    let first = approved(&*store, &lease, run).await;
    store.checkpoint(&lease, using(run, vec![first])).await.unwrap();
    assert_eq!(store.approval(first).await.unwrap().unwrap().state, Used, "on disk before the call begins");
    let again = store.checkpoint(&lease, using(run, vec![first])).await;
    assert!(matches!(&again, Err(StoreError::NotFound(what)) if what.contains(&first.to_string())), "{again:?}");
    assert_eq!(texts(&reload(&*store, &mut lease).await.unfinished[0].messages), ["hi", "begun"]);
    let late = store.decide(first, Approved, ALWAYS, "ann", at(2_000)).await.unwrap();
    assert!(matches!(late, Decided::Before(approval) if approval.state == Used));
}

async fn an_approval_that_does_not_stand_lets_nothing_be_written(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, input("hi")).await;
    let denied = pause(&*store, &lease, run).await.id;
    answer(&*store, denied, Denied).await;
    store.start_run(&lease, run, at(1_900)).await.unwrap();
    let waiting = pause(&*store, &lease, run).await.id;
    store.start_run(&lease, run, at(1_900)).await.unwrap();
    let good = approved(&*store, &lease, run).await;
    let other = open(&*store, "t").await.lease;
    let theirs = accept(&*store, &other, input("theirs")).await;
    let foreign = approved(&*store, &other, theirs).await;
    let events = kinds(&*store, run).await;

    for (case, used) in [
        ("denied", vec![denied]),
        ("unanswered", vec![waiting]),
        ("of another run", vec![foreign]),
        ("unknown", vec![ApprovalId::new()]),
        ("good beside a bad one", vec![good, denied]),
        ("the same twice", vec![good, good]),
    ] {
        let outcome = store.checkpoint(&lease, using(run, used)).await;
        let told = matches!(&outcome, Err(StoreError::NotFound(what)) if what.starts_with("approval "));
        assert!(told, "{case}: {outcome:?}");
    }
    store.ping().await.unwrap();
    assert_eq!(texts(&reload(&*store, &mut lease).await.unfinished[0].messages), ["hi"]);
    assert_eq!(kinds(&*store, run).await, events);
    assert_eq!(store.approval(good).await.unwrap().unwrap().state, Approved, "it still stands");
    assert_eq!(store.approval(foreign).await.unwrap().unwrap().state, Approved);

    // A pause uses approvals up like any checkpoint.
    let pausing = belay_protocol::PausedRun { checkpoint: using(run, vec![good]), ..paused(approval(&lease, run)) };
    store.pause_run(&lease, pausing.clone()).await.unwrap();
    assert_eq!(store.approval(good).await.unwrap().unwrap().state, Used);
    store.start_run(&lease, run, at(2_000)).await.unwrap();
    let again = belay_protocol::PausedRun { approval: approval(&lease, run), ..pausing };
    let outcome = store.pause_run(&lease, again).await;
    assert!(matches!(outcome, Err(StoreError::NotFound(_))), "{outcome:?}");
    store.ping().await.unwrap(); // readers see what is committed
    assert_eq!(store.run(run).await.unwrap().unwrap().status, RunStatus::Running);
}

async fn questions_are_listed_newest_first_and_filtered(store: Shared) {
    let mut asked = Vec::new();
    for (session, channel) in [("s", "http"), ("s", "telegram"), ("t", "http")] {
        let lease = open(&*store, session).await.lease;
        let run = accept(&*store, &lease, NewInput { channel: channel.into(), ..input("hi") }).await;
        asked.push(pause(&*store, &lease, run).await.id);
    }
    let [one, two, three] = asked[..] else { panic!("three were asked") };
    answer(&*store, one, Denied).await;
    let listed = async |filter: ApprovalFilter| {
        store.approvals(filter).await.unwrap().into_iter().map(|approval| approval.id).collect::<Vec<ApprovalId>>()
    };
    let all = ApprovalFilter::default();
    let session = |key: &str| Some(SessionKey::new(key));
    assert_eq!(listed(all.clone()).await, [three, two, one]);
    assert_eq!(listed(ApprovalFilter { limit: 2, ..all.clone() }).await, [three, two]);
    assert_eq!(listed(ApprovalFilter { session: session("s"), ..all.clone() }).await, [two, one]);
    assert_eq!(listed(ApprovalFilter { channel: Some("http".into()), ..all.clone() }).await, [three, one]);
    assert_eq!(listed(ApprovalFilter { waiting: true, ..all.clone() }).await, [three, two]);
    assert_eq!(listed(ApprovalFilter { waiting: true, session: session("s"), ..all.clone() }).await, [two]);
    for (state, expected) in [(Denied, vec![one]), (Waiting, vec![three, two]), (Approved, vec![])] {
        assert_eq!(listed(ApprovalFilter { state: Some(state), ..all.clone() }).await, expected, "{state:?}");
    }
    let channel = Some("http".into());
    let narrow = ApprovalFilter { waiting: true, session: session("s"), channel, limit: 5, ..all.clone() };
    assert!(listed(narrow).await.is_empty());
    assert!(listed(ApprovalFilter { session: session("nobody"), ..all.clone() }).await.is_empty());
    assert!(store.approvals_of(RunId::new()).await.unwrap().is_empty());

    let lease = open(&*store, "u").await.lease;
    let run = accept(&*store, &lease, input("hi")).await;
    for _ in 0..60 {
        pause(&*store, &lease, run).await;
        store.start_run(&lease, run, at(2_000)).await.unwrap();
    }
    store.checkpoint(&lease, checkpoint(run, vec![Message::assistant("x")])).await.unwrap();
    assert_eq!(listed(all).await.len(), 50, "0 means 50");
}
