//! Money and notes.

use belay_protocol::{Note, Purpose, RunId, SessionKey, StoreError};

use crate::kit::*;

super::for_every_store! {
    a_day_costs_what_is_settled_and_what_is_reserved
    money_is_kept_apart_by_what_it_goes_for
    amounts_are_bounded_and_sums_do_not_overflow
    an_unknown_reservation_cannot_be_settled
    a_session_costs_what_its_runs_cost
    notes_are_found_by_any_word_without_case_best_first
    a_note_replaces_the_one_of_its_key_in_its_session
    too_many_or_too_big_notes_are_refused_with_words
}

async fn a_day_costs_what_is_settled_and_what_is_reserved(store: Shared) {
    let run = RunId::new();
    assert_eq!(store.spent(20_000).await.unwrap().total(), 0);
    let first = store.reserve(reservation(run, Purpose::Chat, 20_000, 100)).await.unwrap();
    let second = store.reserve(reservation(run, Purpose::Chat, 20_000, 50)).await.unwrap();
    store.reserve(reservation(run, Purpose::Chat, 20_001, 7)).await.unwrap();
    assert_ne!(first, second);
    assert_eq!(store.spent(20_000).await.unwrap().total(), 150);
    store.settle(first, None, 30).await.unwrap();
    assert_eq!(store.spent(20_000).await.unwrap().total(), 80, "a settlement counts at once");
    store.settle(second, None, 90).await.unwrap();
    assert_eq!(store.spent(20_000).await.unwrap().total(), 120, "a call may cost more than was reserved");
    store.settle(second, None, 90).await.unwrap();
    assert_eq!(store.spent(20_000).await.unwrap().total(), 120, "settling again changes nothing");
    assert_eq!(store.spent(20_001).await.unwrap().total(), 7);
}

async fn money_is_kept_apart_by_what_it_goes_for(store: Shared) {
    let run = RunId::new();
    let job = store.reserve(reservation(run, Purpose::Job, 5, 100)).await.unwrap();
    for (purpose, day, micro_usd) in [(Purpose::Routine, 5, 30), (Purpose::Heartbeat, 6, 1), (Purpose::Job, 5, 7)] {
        store.reserve(reservation(run, purpose, day, micro_usd)).await.unwrap();
    }
    store.settle(job, None, 40).await.unwrap();
    let spent = store.spent(5).await.unwrap();
    assert_eq!(spent.each().collect::<Vec<_>>(), [(Purpose::Job, 47), (Purpose::Routine, 30)]);
    assert_eq!(store.spent(6).await.unwrap().of(Purpose::Heartbeat), 1);
}

async fn amounts_are_bounded_and_sums_do_not_overflow(store: Shared) {
    for _ in 0..3 {
        store.reserve(reservation(RunId::new(), Purpose::Chat, 1, u64::MAX)).await.unwrap();
    }
    assert_eq!(store.spent(1).await.unwrap().total(), 3_000_000_000_000_000);
}

async fn an_unknown_reservation_cannot_be_settled(store: Shared) {
    for unknown in [0, 1, u64::MAX] {
        let outcome = store.settle(unknown, None, 1).await;
        assert!(matches!(outcome, Err(StoreError::NotFound(_))), "{unknown}: {outcome:?}");
    }
}

async fn a_session_costs_what_its_runs_cost(store: Shared) {
    assert_eq!(store.session_spent(&SessionKey::new("s")).await.unwrap(), 0);
    for session in ["s", "s", "t"] {
        let lease = open(&*store, session).await.lease;
        let run = accept(&*store, &lease, input("hi")).await;
        store.finish_runs(&lease, vec![finished(run, "done")]).await.unwrap();
    }
    assert_eq!(store.session_spent(&SessionKey::new("s")).await.unwrap(), 14, "two runs of 7");
}

async fn notes_are_found_by_any_word_without_case_best_first(store: Shared) {
    let session = SessionKey::new("s");
    for (key, text, ms) in [
        ("Tea", "likes ÄPFEL and green tea", 1),
        ("city", "lives in Łódź", 2),
        ("pet", "a cat called Äpfel", 3),
        ("work", "green energy", 4),
    ] {
        store.remember(&session, key, text, at(ms)).await.unwrap();
    }
    for (query, limit, expected) in [
        ("", 10, vec!["work", "pet", "city", "Tea"]),
        ("  ", 2, vec!["work", "pet"]),
        ("äpfel", 10, vec!["pet", "Tea"]),
        ("äpfel GREEN", 10, vec!["Tea", "work", "pet"]),
        ("łódź", 10, vec!["city"]),
        ("TEA", 10, vec!["Tea"]),
        ("nothing", 10, vec![]),
        ("green", 1, vec!["work"]),
    ] {
        let found = store.recall(&session, query, limit).await.unwrap();
        assert_eq!(found.iter().map(|note| note.key.as_str()).collect::<Vec<_>>(), expected, "{query:?}");
    }
}

async fn a_note_replaces_the_one_of_its_key_in_its_session(store: Shared) {
    let (mine, other) = (SessionKey::new("s"), SessionKey::new("t"));
    store.remember(&mine, "k", "old", at(1)).await.unwrap();
    store.remember(&mine, "k", "new", at(2)).await.unwrap();
    store.remember(&other, "k", "theirs", at(3)).await.unwrap();
    let expected = Note { key: "k".into(), text: "new".into(), at: at(2) };
    assert_eq!(store.recall(&mine, "", 10).await.unwrap(), [expected]);
}

async fn too_many_or_too_big_notes_are_refused_with_words(store: Shared) {
    let session = SessionKey::new("s");
    let refused = |outcome: Result<(), StoreError>| match outcome {
        Err(StoreError::TooMuch(words)) => words,
        other => panic!("{other:?}"),
    };
    assert!(refused(store.remember(&session, "k", &"x".repeat(16 * 1024 + 1), at(1)).await).contains("16384 bytes"));
    assert!(refused(store.remember(&session, &"k".repeat(257), "x", at(1)).await).contains("key"));
    store.remember(&session, "k", &"x".repeat(16 * 1024), at(1)).await.unwrap();
    let mut writes = tokio::task::JoinSet::new();
    for n in 1..1000 {
        let (store, session) = (store.clone(), session.clone());
        writes.spawn(async move { store.remember(&session, &n.to_string(), "x", at(n)).await });
    }
    assert!(writes.join_all().await.into_iter().all(|outcome| outcome.is_ok()));
    assert!(refused(store.remember(&session, "one more", "x", at(1)).await).contains("1000 notes"));
    store.remember(&session, "k", "a known key may change", at(1)).await.unwrap();
    store.remember(&"other".into(), "one more", "x", at(1)).await.unwrap();
}
