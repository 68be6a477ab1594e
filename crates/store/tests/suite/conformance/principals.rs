//! The senders of messages.

use std::sync::Arc;

use belay_protocol::{
    Acceptance, Asker, JobId, KnownPrincipal, NewInput, Person, PrincipalFilter, Provenance, Retention, RoutineRunId,
    SEEN_PRECISION_MS, Work,
};

use crate::kit::*;

super::for_every_store! {
    a_sender_is_noted_with_its_message_and_at_most_once_an_hour
    a_second_delivery_and_background_work_note_nobody
    who_has_sent_nothing_for_long_is_forgotten_with_the_conversations
}

/// A message of that sender through that channel.
fn message(channel: &str, id: &str, name: Option<&str>, ms: i64) -> NewInput {
    let person = |name: &str| Person { name: name.into(), username: None, id: id.into() };
    let provenance = name.map(|name| Arc::new(Provenance { sender: Some(person(name)), ..Provenance::default() }));
    let asker = Asker { principal: id.into(), ..Asker::default() };
    NewInput { channel: channel.into(), asker, provenance, at: at(ms), start: false, ..input("hi") }
}

fn known(channel: &str, id: &str, name: Option<&str>, first: i64, last: i64) -> KnownPrincipal {
    let name = name.map(str::to_owned);
    KnownPrincipal { channel: channel.into(), id: id.into(), name, first_seen_at: at(first), last_seen_at: at(last) }
}

async fn a_sender_is_noted_with_its_message_and_at_most_once_an_hour(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    assert_eq!(store.principals(PrincipalFilter::first(9)).await.unwrap(), []);
    let hour = SEEN_PRECISION_MS;
    for (sent, expected) in [
        (message("telegram", "42", Some("Ann"), 1_000), vec![known("telegram", "42", Some("Ann"), 1_000, 1_000)]),
        // Recent: neither the date nor the name is written.
        (message("telegram", "42", Some("Anna"), 999 + hour), vec![known("telegram", "42", Some("Ann"), 1_000, 1_000)]),
        // The clock was set back.
        (message("telegram", "42", None, 500), vec![known("telegram", "42", Some("Ann"), 1_000, 1_000)]),
        (
            message("telegram", "42", Some("Anna"), 1_000 + hour),
            vec![known("telegram", "42", Some("Anna"), 1_000, 1_000 + hour)],
        ),
        // The same id in another channel is another principal.
        (
            message("http", "42", None, 2_000),
            vec![known("telegram", "42", Some("Anna"), 1_000, 1_000 + hour), known("http", "42", None, 2_000, 2_000)],
        ),
        // A name that is not given again stays.
        (
            message("telegram", "42", None, 1_000 + 2 * hour),
            vec![
                known("telegram", "42", Some("Anna"), 1_000, 1_000 + 2 * hour),
                known("http", "42", None, 2_000, 2_000),
            ],
        ),
    ] {
        accept(&*store, &lease, sent).await;
        assert_eq!(store.principals(PrincipalFilter::first(9)).await.unwrap(), expected);
    }
    assert_eq!(store.principals(PrincipalFilter::first(1)).await.unwrap().len(), 1);
}

async fn a_second_delivery_and_background_work_note_nobody(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let id = RoutineRunId::new();
    for work in [Work::Job { job: JobId::new(), attempt: Some(1) }, Work::RoutineRun { id }, Work::Heartbeat { id }] {
        accept(&*store, &lease, NewInput { work, ..message("telegram", "42", None, 1_000) }).await;
    }
    assert_eq!(store.principals(PrincipalFilter::first(9)).await.unwrap(), []);
    let sent = |id: &str| NewInput { key: Some(key("k")), ..message("http", id, None, 1_000) };
    accept(&*store, &lease, sent("ann")).await;
    let again = store.accept(&lease, sent("eve")).await.unwrap();
    assert!(matches!(again, Acceptance::Known(_)), "{again:?}");
    assert_eq!(store.principals(PrincipalFilter::first(9)).await.unwrap(), [known("http", "ann", None, 1_000, 1_000)]);
}

async fn who_has_sent_nothing_for_long_is_forgotten_with_the_conversations(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    accept(&*store, &lease, message("http", "ann", None, 1_000)).await;
    accept(&*store, &lease, message("http", "bob", None, 2_000)).await;
    store.prune(Retention::default(), 10).await.unwrap();
    assert_eq!(store.principals(PrincipalFilter::first(9)).await.unwrap().len(), 2);
    store.prune(Retention { threads_before: Some(at(2_000)), ..Retention::default() }, 10).await.unwrap();
    assert_eq!(store.principals(PrincipalFilter::first(9)).await.unwrap(), [known("http", "bob", None, 2_000, 2_000)]);
}
