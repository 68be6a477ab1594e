//! The order of events within a session.

use std::collections::HashMap;
use std::path::Path;

use belay_protocol::{Archive, EventKind, EventLog, NewEvent, Retention, StoreHealth, ThreadEdit};
use belay_store::{SqliteStore, StoreOptions};
use rusqlite::Connection;

use crate::kit::*;

fn event(session: Option<&str>, ms: i64) -> NewEvent {
    let kind = EventKind::ThreadEdited { edit: "undo".into() };
    NewEvent { at: at(ms), session: session.map(Into::into), run_id: None, kind }
}

/// The events from behind a number on: session and number within it.
fn numbers(conn: &Connection, after: i64) -> Vec<(Option<String>, Option<i64>)> {
    let mut statement = conn.prepare("SELECT session, session_seq FROM events WHERE seq > ?1 ORDER BY seq").unwrap();
    statement.query_map([after], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
}

#[tokio::test]
async fn events_are_numbered_within_their_session_in_the_order_of_commit() {
    let (store, directory) = sqlite();
    let one = |session| event(session, 1_000);
    store.append(vec![one(Some("a")), one(None), one(Some("a")), one(Some("b"))]).await.unwrap();
    // More than one statement takes.
    store.append((0..20).map(|n| one(Some(if n % 2 == 0 { "a" } else { "b" }))).collect()).await.unwrap();
    store.close().await;
    let conn = Connection::open(directory.path().join("belay.db")).unwrap();
    let of = |wanted: &str| -> Vec<i64> {
        numbers(&conn, 0)
            .into_iter()
            .filter(|(session, _)| session.as_deref() == Some(wanted))
            .filter_map(|n| n.1)
            .collect()
    };
    assert_eq!(of("a"), (1..=12).collect::<Vec<_>>());
    assert_eq!(of("b"), (1..=11).collect::<Vec<_>>());
    assert_eq!(numbers(&conn, 1)[0], (None, None));
    let again = conn.execute("UPDATE events SET session_seq = 1 WHERE session = 'a'", []);
    assert!(again.is_err_and(|error| error.to_string().contains("UNIQUE")), "a number is used once");
}

/// Looks at the new events: none has a number that its session has used before.
async fn look(store: &SqliteStore, path: &Path, newest: &mut HashMap<String, i64>, after: &mut i64) {
    store.ping().await.unwrap(); // what is relaxed is committed with it
    let conn = Connection::open(path).unwrap();
    for (session, number) in numbers(&conn, *after) {
        let (session, number) = (session.unwrap(), number.unwrap());
        assert!(newest.get(&session).is_none_or(|newest| *newest < number), "{session} {number} {newest:?}");
        newest.insert(session, number);
    }
    *after = conn.query_row("SELECT MAX(seq) FROM events", [], |row| row.get(0)).unwrap();
}

/// A reader that has seen a number of a session misses nothing behind it, whatever was deleted in between.
#[tokio::test]
async fn no_number_of_a_session_comes_again_after_deletions_and_restarts() {
    let (mut store, directory) = sqlite();
    let path = directory.path().join("belay.db");
    let (mut newest, mut after): (HashMap<String, i64>, i64) = (HashMap::new(), 0);
    for round in 0..8 {
        let lease = open(&store, "s").await.lease;
        turn(&store, &lease, "hi").await;
        turn(&store, &open(&store, "other").await.lease, "hi").await;
        look(&store, &path, &mut newest, &mut after).await;
        let mut old = Retention::default();
        match round % 4 {
            0 => drop(store.delete_session(&lease, at(3_000)).await.unwrap()),
            1 => drop(edit(&store, &lease, ThreadEdit::New).await),
            2 => old.events_before = Some(at(1_000_000)),
            _ => old.threads_before = Some(at(1_000_000)),
        }
        store.prune(old, 10_000).await.unwrap();
        store.close().await;
        store = SqliteStore::open(&path, StoreOptions::default()).unwrap();
        turn(&store, &open(&store, "s").await.lease, "again").await;
        look(&store, &path, &mut newest, &mut after).await;
    }
    store.close().await;
}
