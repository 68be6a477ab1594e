//! Mail for lanes that other nodes own.

use std::slice::from_ref;
use std::sync::Arc;

use belay_protocol::store::{ClusterStore, MailEnd, MailPlace, MailStore};
use belay_protocol::{
    Acceptance, Archive, BootId, EventKind, EventLog, EventQuery, IdPrefix, LaneStore, MailId, NewInput, NodeMail,
    OpenMail, OrderTarget, Retention, RunEnd, RunFilter, RunId, RunReader, RunStatus, Secret, SecretVault, Seq,
    StopReason, StoreError, StoreHealth,
};
use belay_store::{SealedVault, SqlStore, VaultKey};
use serde_json::json;

use super::for_every_store;
use crate::kit::*;

for_every_store! {
    open_mail_is_for_the_owner_of_the_lane_or_for_everybody
    mail_is_taken_once_with_each_lease
    mail_that_an_ended_owner_began_is_marked
    the_first_answer_counts
    answered_mail_is_deleted_with_its_session_and_with_time
    secrets_of_mail_that_is_not_open_are_deleted_with_time
    a_message_is_not_accepted_before_earlier_mail
    an_acceptance_answers_its_mail_and_an_answered_mail_is_not_accepted
    a_message_that_its_sender_has_acknowledged_is_not_refused_without_an_end
    the_list_of_runs_begins_with_the_messages_in_the_mail
    a_duplicate_leaves_its_mail_open
    a_message_in_the_mail_is_a_run
    open_messages_are_found_by_what_is_stopped
}

type Store = Arc<SqlStore>;

const HOUR_MS: u32 = 3_600_000;

fn mail(session: &str, text: &str) -> NodeMail {
    NodeMail {
        id: MailId::new(),
        session: session.into(),
        source: BootId::new(),
        at: at(1_000),
        run: None,
        body: json!({"text": text}),
    }
}

async fn sent(store: &Store, session: &str, text: &str) -> NodeMail {
    let mail = mail(session, text);
    store.send(mail.clone()).await.unwrap();
    mail
}

async fn alive(store: &Store, name: &str) -> BootId {
    let boot = BootId::new();
    store.put_node(boot, name, HOUR_MS).await.unwrap();
    boot
}

/// The texts that a node reads, with a mark of those that were begun.
async fn read(store: &Store, owner: BootId) -> Vec<String> {
    let open = store.open_mail(owner, None, 10).await.unwrap();
    let text = |OpenMail { mail, begun }| {
        let text = mail.body["text"].as_str().unwrap().to_owned();
        if begun { format!("{text} (begun)") } else { text }
    };
    open.into_iter().map(text).collect()
}

async fn open_mail_is_for_the_owner_of_the_lane_or_for_everybody(store: Store) {
    let (a, b) = (alive(&store, "a").await, alive(&store, "b").await);
    open_as(&*store, "of a", a).await;
    open_as(&*store, "of nobody", BootId::new()).await;
    let first = sent(&store, "of a", "1").await;
    for (session, text) in [("new", "2"), ("of nobody", "3"), ("of a", "4")] {
        sent(&store, session, text).await;
    }
    store.send(first.clone()).await.unwrap();
    assert_eq!(store.open_mail(a, None, 1).await.unwrap(), [OpenMail { mail: first, begun: false }]);
    assert_eq!(read(&store, a).await, ["1", "2", "3", "4"], "in order, and each once");
    assert_eq!(read(&store, b).await, ["2", "3"]);
    store.release(a).await.unwrap();
    assert_eq!(read(&store, b).await, ["1", "2", "3", "4"]);
}

async fn mail_is_taken_once_with_each_lease(store: Store) {
    let (a, b) = (alive(&store, "a").await, alive(&store, "b").await);
    let mail = sent(&store, "s", "1").await;
    let lease = open_as(&*store, "s", a).await.lease;
    assert!(store.take(mail.id, &lease).await.unwrap());
    assert!(!store.take(mail.id, &lease).await.unwrap(), "the lane has it");
    assert_eq!(read(&store, a).await, ["1"]);
    let other = open_as(&*store, "other", a).await.lease;
    assert!(!store.take(mail.id, &other).await.unwrap(), "it is for another lane");
    let again = open_as(&*store, "s", a).await.lease;
    store.ping().await.unwrap(); // what was written before is committed now
    assert_eq!(read(&store, a).await, ["1 (begun)"], "under an earlier lease");
    assert!(store.take(mail.id, &again).await.unwrap());
    assert!(matches!(store.take(mail.id, &lease).await, Err(StoreError::LeaseLost(_))));
    store.release(a).await.unwrap();
    let lease = open_as(&*store, "s", b).await.lease;
    assert!(matches!(store.take(mail.id, &again).await, Err(StoreError::LeaseLost(_))));
    store.answer(mail.id, json!("done"), None).await.unwrap();
    assert!(!store.take(mail.id, &lease).await.unwrap(), "it is answered");
}

async fn mail_that_an_ended_owner_began_is_marked(store: Store) {
    let (a, b) = (alive(&store, "a").await, alive(&store, "b").await);
    let (mail, _) = (sent(&store, "s", "1").await, sent(&store, "s", "2").await);
    let lease = open_as(&*store, "s", a).await.lease;
    assert!(store.take(mail.id, &lease).await.unwrap());
    assert_eq!(read(&store, b).await, [""; 0]);
    store.release(a).await.unwrap();
    assert_eq!(read(&store, b).await, ["1 (begun)", "2"]);
}

async fn the_first_answer_counts(store: Store) {
    let owner = BootId::new();
    let (one, two) = (sent(&store, "s", "1").await, sent(&store, "s", "2").await);
    for ack in ["first", "second"] {
        store.answer(one.id, json!({"ack": ack}), None).await.unwrap();
    }
    assert_eq!(read(&store, owner).await, ["2"]);
    store.send(one.clone()).await.unwrap();
    assert_eq!(read(&store, owner).await, ["2"], "answered mail is not opened again");
    let mut asked = vec![two.id, one.id, MailId::new()];
    asked.extend((0..100).map(|_| MailId::new()));
    assert_eq!(store.answers(&asked).await.unwrap(), [(one.id, json!({"ack": "first"}))]);
    assert_eq!(store.answers(&[]).await.unwrap(), []);
}

async fn answered_mail_is_deleted_with_its_session_and_with_time(store: Store) {
    let lease = open(&*store, "s").await.lease;
    let (answered, open_still, other) =
        (sent(&store, "s", "1").await, sent(&store, "s", "2").await, sent(&store, "other", "3").await);
    for mail in [&answered, &other] {
        store.answer(mail.id, json!("done"), None).await.unwrap();
    }
    let answers = async || {
        store.answers(&[answered.id, other.id]).await.unwrap().into_iter().map(|(id, _)| id).collect::<Vec<_>>()
    };
    store.delete_session(&lease, at(3_000)).await.unwrap();
    assert_eq!(answers().await, [other.id]);
    assert_eq!(read(&store, BootId::new()).await, ["2"], "{}", open_still.id);
    for (before, left) in [(1_000, vec![other.id]), (1_001, vec![])] {
        let old = Retention { keys_before: at(before), ..Retention::default() };
        store.prune(old, 100).await.unwrap();
        assert_eq!(answers().await, left, "{before}");
    }
    assert_eq!(read(&store, BootId::new()).await, ["2"]);
}

/// A node can end between the answer to mail and the removal of its secret, or before it has sent the mail.
async fn secrets_of_mail_that_is_not_open_are_deleted_with_time(store: Store) {
    let vault = SealedVault::new(store.clone(), VaultKey::from_bytes(&[1; 32]).unwrap());
    let (answered, open) = (sent(&store, "s", "1").await, sent(&store, "s", "2").await);
    store.answer(answered.id, json!("done"), None).await.unwrap();
    let of_mail = [answered.id, open.id, MailId::new()].map(NodeMail::secret_name);
    for name in of_mail.iter().map(String::as_str).chain(["token"]) {
        vault.keep(&"s".into(), name, &Secret::new("x".into()), at(1_000)).await.unwrap();
    }
    let kept = async || {
        let mut kept = Vec::new();
        for name in of_mail.iter().map(String::as_str).chain(["token"]) {
            kept.push(vault.find(&"s".into(), name).await.unwrap().is_some());
        }
        kept
    };
    for (before, left) in [(1_000, [true; 4]), (1_001, [false, true, false, true])] {
        let old = Retention { keys_before: at(before), ..Retention::default() };
        store.prune(old, 100).await.unwrap();
        assert_eq!(kept().await, left, "{before}");
    }
}

/// A message that is sent as mail.
async fn message(store: &Store, session: &str, text: &str) -> NodeMail {
    let mail = NodeMail { run: Some(RunId::new()), ..mail(session, text) };
    store.send(mail.clone()).await.unwrap();
    mail
}

/// The acceptance of a message that did not come as mail.
fn direct(text: &str, handled: &[MailId]) -> NewInput {
    NewInput { place: Some(MailPlace { own: None, handled: handled.to_vec() }), ..queued(text) }
}

/// The acceptance of a message that came as mail.
fn of_mail(mail: &NodeMail) -> NewInput {
    let place = MailPlace { own: Some((mail.id, json!("accepted"))), handled: Vec::new() };
    NewInput { run_id: mail.run.unwrap(), place: Some(place), ..queued("hi") }
}

async fn a_message_is_not_accepted_before_earlier_mail(store: Store) {
    let a = alive(&store, "a").await;
    let lease = open_as(&*store, "s", a).await.lease;
    assert_eq!(store.accept(&lease, direct("0", &[])).await.unwrap(), Acceptance::New);
    sent(&store, "other", "of another lane").await;
    let command = sent(&store, "s", "1").await;
    let (second, third) = (message(&store, "s", "2").await, message(&store, "s", "3").await);
    let behind = |mails: &[&NodeMail]| Acceptance::Behind(mails.iter().map(|mail| mail.id).collect());
    let all = behind(&[&command, &second, &third]);
    assert_eq!(store.accept(&lease, direct("4", &[])).await.unwrap(), all);
    assert_eq!(store.accept(&lease, of_mail(&third)).await.unwrap(), behind(&[&command, &second]));
    let runs = store.runs(RunFilter::default()).await.unwrap();
    let in_the_mail = [second.run, third.run];
    assert_eq!(runs.iter().filter(|run| !in_the_mail.contains(&Some(run.run_id))).count(), 1);
    // A command that the lane carries out is handled, and so is what the lane says.
    assert!(store.take(command.id, &lease).await.unwrap());
    assert_eq!(store.accept(&lease, of_mail(&third)).await.unwrap(), behind(&[&second]));
    assert_eq!(store.accept(&lease, of_mail(&second)).await.unwrap(), Acceptance::New);
    assert_eq!(store.accept(&lease, direct("4", &[])).await.unwrap(), behind(&[&third]));
    assert_eq!(store.accept(&lease, direct("4", &[third.id])).await.unwrap(), Acceptance::New);
    assert_eq!(store.accept(&lease, of_mail(&third)).await.unwrap(), Acceptance::New);
    // An earlier lease has begun the command: it is not known what it did, and the lane must settle that first.
    let lease = open_as(&*store, "s", a).await.lease;
    assert_eq!(store.accept(&lease, direct("5", &[])).await.unwrap(), behind(&[&command]));
    store.answer(command.id, json!("done"), None).await.unwrap();
    assert_eq!(store.accept(&lease, direct("5", &[])).await.unwrap(), Acceptance::New);
    // A daemon that is alone does not look.
    message(&store, "s", "6").await;
    assert_eq!(store.accept(&lease, queued("7")).await.unwrap(), Acceptance::New);
}

async fn an_acceptance_answers_its_mail_and_an_answered_mail_is_not_accepted(store: Store) {
    let lease = open(&*store, "s").await.lease;
    let (one, two) = (message(&store, "s", "1").await, message(&store, "s", "2").await);
    assert_eq!(store.accept(&lease, of_mail(&one)).await.unwrap(), Acceptance::New);
    assert_eq!(store.answers(&[one.id, two.id]).await.unwrap(), [(one.id, json!("accepted"))]);
    assert!(!store.answer(one.id, json!("refused"), None).await.unwrap(), "it has an answer");
    assert_eq!(store.accept(&lease, of_mail(&one)).await.unwrap(), Acceptance::Behind(vec![two.id]));
    assert!(store.answer(two.id, json!("stopped"), None).await.unwrap());
    for mail in [&one, &two] {
        assert_eq!(store.accept(&lease, of_mail(mail)).await.unwrap(), Acceptance::Answered);
    }
    assert_eq!(store.run(one.run.unwrap()).await.unwrap().unwrap().status, RunStatus::Queued);
    assert_eq!(store.run(two.run.unwrap()).await.unwrap(), None);
    assert_eq!(store.answers(&[two.id]).await.unwrap(), [(two.id, json!("stopped"))]);
}

async fn a_message_that_its_sender_has_acknowledged_is_not_refused_without_an_end(store: Store) {
    let end = || MailEnd { end: RunEnd::of(StopReason::Internal).with("refusal", "invalid"), at: at(3_000) };
    let promised = message(&store, "s", "1").await;
    assert!(store.promise(promised.id).await.unwrap());
    assert!(store.promise(promised.id).await.unwrap(), "once more");
    assert!(!store.refuse(promised.id, json!("busy"), None).await.unwrap(), "it stays open");
    assert_eq!(store.answers(&[promised.id]).await.unwrap(), []);
    assert_eq!(store.run(promised.run.unwrap()).await.unwrap().unwrap().status, RunStatus::Queued);
    assert!(store.refuse(promised.id, json!("invalid"), Some(end())).await.unwrap());
    assert_eq!(store.run(promised.run.unwrap()).await.unwrap().unwrap().status, RunStatus::Failed);
    assert!(!store.promise(promised.id).await.unwrap(), "it has an answer");

    for end in [None, Some(end())] {
        let waiting = message(&store, "s", "2").await;
        assert!(store.refuse(waiting.id, json!("busy"), end).await.unwrap());
        assert_eq!(store.answers(&[waiting.id]).await.unwrap(), [(waiting.id, json!("busy"))]);
        assert_eq!(store.run(waiting.run.unwrap()).await.unwrap(), None, "nobody was told of its run");
        assert!(!store.promise(waiting.id).await.unwrap());
        assert!(!store.refuse(waiting.id, json!("again"), None).await.unwrap());
        let query = EventQuery { after: Seq(0), run: waiting.run, session: None, limit: 10 };
        assert_eq!(store.read(query).await.unwrap(), []);
    }
}

async fn the_list_of_runs_begins_with_the_messages_in_the_mail(store: Store) {
    let lease = open(&*store, "s").await.lease;
    let old = accept(&*store, &lease, input("old")).await;
    let (one, other, three) =
        (message(&store, "s", "1").await, message(&store, "t", "2").await, message(&store, "s", "3").await);
    let [first, second, third] = [&one, &other, &three].map(|mail| mail.run.unwrap());
    let list = async |filter: RunFilter| {
        let runs = store.runs(filter).await.unwrap();
        runs.into_iter().map(|run| run.run_id).collect::<Vec<_>>()
    };
    assert_eq!(list(RunFilter::default()).await, [third, second, first, old]);
    let page = |before: Option<RunId>| RunFilter { before, limit: 2, ..RunFilter::default() };
    assert_eq!(list(page(None)).await, [third, second]);
    assert_eq!(list(page(Some(second))).await, [first, old]);
    assert_eq!(list(page(Some(first))).await, [old]);
    assert_eq!(list(page(Some(old))).await, []);
    let of = |filter: RunFilter| list(RunFilter { session: Some("s".into()), ..filter });
    assert_eq!(of(RunFilter::default()).await, [third, first, old]);
    let statuses = vec![RunStatus::Queued];
    assert_eq!(list(RunFilter { statuses, ..RunFilter::default() }).await, [third, second, first]);
    let statuses = vec![RunStatus::Running];
    assert_eq!(list(RunFilter { statuses, ..RunFilter::default() }).await, [old]);
    let reasons = vec![StopReason::UserStop];
    assert_eq!(list(RunFilter { reasons, ..RunFilter::default() }).await, []);
    let id = Some(IdPrefix::parse(&second.to_string()).unwrap());
    assert_eq!(list(RunFilter { id, ..RunFilter::default() }).await, [second]);
    let after = Some(at(one.at.0 + 1));
    for (since, until, expected) in [(None, after, 4), (after, None, 0)] {
        assert_eq!(list(RunFilter { since, until, ..RunFilter::default() }).await.len(), expected);
    }
    // Accepted, refused and stopped ones are no longer mail.
    assert_eq!(store.accept(&lease, of_mail(&one)).await.unwrap(), Acceptance::New);
    store.refuse(other.id, json!("busy"), None).await.unwrap();
    assert_eq!(list(RunFilter::default()).await, [third, first, old]);
}

async fn a_duplicate_leaves_its_mail_open(store: Store) {
    let lease = open(&*store, "s").await.lease;
    store.accept(&lease, NewInput { key: Some(key("k")), ..direct("hi", &[]) }).await.unwrap();
    let mail = message(&store, "s", "hi").await;
    let again = store.accept(&lease, NewInput { key: Some(key("k")), ..of_mail(&mail) }).await.unwrap();
    assert!(matches!(again, Acceptance::Known(_)), "{again:?}");
    assert_eq!(store.answers(&[mail.id]).await.unwrap(), []);
}

async fn a_message_in_the_mail_is_a_run(store: Store) {
    let lease = open(&*store, "s").await.lease;
    let mail = message(&store, "s", "1").await;
    let run = mail.run.unwrap();
    let waiting = store.run(run).await.unwrap().expect("it waits");
    assert_eq!((waiting.run_id, &*waiting.session.to_string(), waiting.status), (run, "s", RunStatus::Queued));
    assert_eq!((waiting.accepted_at, waiting.reason, waiting.ended_at), (mail.at, None, None));

    let end = RunEnd::of(StopReason::UserStop).with("by", "alice");
    let end = MailEnd { end, at: at(3_000) };
    assert!(store.answer(mail.id, json!("stopped"), Some(end.clone())).await.unwrap());
    assert!(!store.answer(mail.id, json!("again"), Some(end)).await.unwrap());
    let ended = store.run(run).await.unwrap().expect("it has ended");
    assert_eq!((ended.status, ended.reason), (RunStatus::Stopped, Some(StopReason::UserStop)));
    assert_eq!((ended.ended_at, &ended.evidence["by"]), (Some(at(3_000)), &json!("alice")));
    let query = EventQuery { after: Seq(0), run: Some(run), session: None, limit: 10 };
    let kinds: Vec<_> = store.read(query).await.unwrap().into_iter().map(|event| (event.at, event.kind)).collect();
    let reason = StopReason::UserStop;
    assert!(
        matches!(&kinds[..], [(accepted, EventKind::RunAccepted), (ended, EventKind::RunEnded { reason: why, .. })]
            if *accepted == mail.at && *ended == at(3_000) && *why == reason),
        "{kinds:?}"
    );

    // The run of the lane is the one that readers see.
    let other = message(&store, "s", "2").await;
    assert_eq!(store.accept(&lease, NewInput { at: at(5_000), ..of_mail(&other) }).await.unwrap(), Acceptance::New);
    assert_eq!(store.run(other.run.unwrap()).await.unwrap().unwrap().accepted_at, at(5_000));
    // A command has no run, and so no end.
    let command = sent(&store, "s", "3").await;
    let end = MailEnd { end: RunEnd::of(StopReason::UserStop), at: at(3_000) };
    assert!(store.answer(command.id, json!("stopped"), Some(end)).await.unwrap());
}

async fn open_messages_are_found_by_what_is_stopped(store: Store) {
    let a = alive(&store, "a").await;
    open_as(&*store, "s", a).await;
    sent(&store, "s", "a command").await;
    let (one, two, other) =
        (message(&store, "s", "1").await, message(&store, "s", "2").await, message(&store, "other", "3").await);
    let found = async |target, limit| store.open_messages(&target, limit).await.unwrap();
    let of_session = || OrderTarget::Session("s".into());
    assert_eq!(found(of_session(), 10).await, [one.clone(), two.clone()]);
    assert_eq!(found(of_session(), 1).await, from_ref(&one));
    assert_eq!(found(OrderTarget::All, 10).await, [one.clone(), two.clone(), other]);
    assert_eq!(found(OrderTarget::Run(two.run.unwrap()), 10).await, from_ref(&two));
    store.answer(one.id, json!("done"), None).await.unwrap();
    assert_eq!(found(of_session(), 10).await, from_ref(&two));
    let open = store.open_mail(a, Some(&"s".into()), 10).await.unwrap();
    let texts: Vec<_> = open.iter().map(|open| open.mail.body["text"].clone()).collect();
    assert_eq!(texts, ["a command", "2"], "of this lane alone");
}
