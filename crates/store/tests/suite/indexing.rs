//! The numbers of events, and the indexes that are written behind the reply.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use belay_protocol::{
    Archive, EventKind, EventLog, EventQuery, NewEvent, Retention, RunFilter, RunId, RunReader, SearchQuery,
    StoreHealth, ThreadEdit,
};
use belay_store::{SqlStore, StoreOptions};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::kit::*;

fn connect(directory: &TempDir) -> Connection {
    Connection::open(directory.path().join("belay.db")).unwrap()
}

fn number(conn: &Connection, sql: &str) -> i64 {
    conn.query_row(sql, [], |row| row.get(0)).unwrap()
}

const BEHIND: &str = "SELECT (SELECT MAX(seq) FROM events) - event FROM indexed";

/// Waits until the store has indexed all but so many events by itself.
async fn indexed_but(behind: i64, directory: &TempDir) {
    let conn = connect(directory);
    for _ in 0..6_000 {
        if number(&conn, BEHIND) <= behind {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("after a minute {} events are not indexed", number(&conn, BEHIND));
}

async fn hits(store: &SqlStore, words: &str) -> usize {
    store.search(SearchQuery { words: words.into(), ..SearchQuery::default() }).await.unwrap().len()
}

/// A query of one run or session finds the same rows as a look at everything.
async fn every_query_is_complete(store: &SqlStore, sessions: &[&str]) {
    let all = store.read(EventQuery { limit: 1000, ..EventQuery::default() }).await.unwrap();
    let runs = store.runs(RunFilter { limit: 1000, ..RunFilter::default() }).await.unwrap();
    for run in &runs {
        let of_run =
            store.read(EventQuery { run: Some(run.run_id), limit: 1000, ..EventQuery::default() }).await.unwrap();
        let wanted: Vec<_> = all.iter().filter(|event| event.run_id == Some(run.run_id)).cloned().collect();
        assert_eq!(of_run, wanted);
        for after in wanted.iter().map(|event| event.seq) {
            let query = EventQuery { run: Some(run.run_id), after, limit: 1, ..EventQuery::default() };
            let next = wanted.iter().find(|event| event.seq > after).cloned();
            assert_eq!(store.read(query).await.unwrap().pop(), next);
        }
    }
    for session in sessions {
        let filter = |limit| RunFilter { session: Some((*session).into()), limit, ..RunFilter::default() };
        let ids = |runs: &[belay_protocol::RunRecord]| -> Vec<RunId> { runs.iter().map(|run| run.run_id).collect() };
        let wanted: Vec<_> = runs.iter().filter(|run| run.session.as_str() == *session).cloned().collect();
        assert_eq!(ids(&store.runs(filter(1000)).await.unwrap()), ids(&wanted));
        assert_eq!(ids(&store.runs(filter(2)).await.unwrap()), ids(&wanted[..wanted.len().min(2)]), "the newest ones");
    }
}

#[tokio::test]
async fn queries_are_complete_before_and_after_the_indexing() {
    let (store, directory) = sqlite();
    let sessions = ["a", "b", "c"];
    let mut leases = Vec::new();
    for session in sessions {
        leases.push(open(&store, session).await.lease);
    }
    for round in 0..6 {
        for lease in &leases {
            turn(&store, lease, "hi").await;
        }
        accept(&store, &leases[round % 3], queued("later")).await;
        every_query_is_complete(&store, &sessions).await;
        if round % 2 == 0 {
            hits(&store, "hi").await; // a search indexes what is left
            assert_eq!(number(&connect(&directory), BEHIND), 0);
            every_query_is_complete(&store, &sessions).await;
        }
    }
    store.close().await;
    let conn = connect(&directory);
    assert_eq!(number(&conn, BEHIND), 0, "an orderly end leaves nothing to the next start");
    assert_eq!(number(&conn, "SELECT COUNT(*) FROM runs WHERE indexed = 1"), 18, "the ended ones");
    assert_eq!(number(&conn, "SELECT COUNT(*) FROM events WHERE indexed = 0"), 0);
}

/// The copy has what a crash at that moment leaves: the database and its log, without the indexing that follows.
#[tokio::test]
async fn a_crash_between_a_reply_and_its_indexing_loses_no_search_result() {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    turn(&store, &lease, "where is the wrench").await;
    let crashed = tempfile::tempdir().unwrap();
    for file in ["belay.db", "belay.db-wal"] {
        std::fs::copy(directory.path().join(file), crashed.path().join(file)).unwrap();
    }
    assert_eq!(number(&connect(&crashed), BEHIND), 3);
    let store = SqlStore::open(&crashed.path().join("belay.db"), StoreOptions::default()).unwrap();
    assert_eq!(hits(&store, "wrench").await, 2, "the question and the answer");
}

#[tokio::test]
async fn many_events_are_indexed_without_a_search() {
    let (store, directory) = sqlite();
    let kind = EventKind::ThreadEdited { edit: "undo".into() };
    let event = NewEvent { at: at(1_000), session: Some("s".into()), run_id: None, kind };
    for _ in 0..11 {
        store.append(vec![event.clone(); 100]).await.unwrap();
    }
    store.ping().await.unwrap(); // what is relaxed is committed with it
    indexed_but(128, &directory).await;
}

#[tokio::test]
async fn a_search_finds_what_was_just_said_and_not_what_was_deleted() {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    turn(&store, &lease, "where is the wrench").await;
    assert_eq!(hits(&store, "wrench").await, 2);
    turn(&store, &lease, "and the hammer").await;
    store.delete_session(&lease, at(3_000)).await.unwrap();
    assert_eq!((hits(&store, "wrench").await, hits(&store, "hammer").await), (0, 0));
    assert_eq!(
        number(&connect(&directory), "SELECT COUNT(*) FROM message_index WHERE message_index MATCH 'hammer'"),
        0
    );
    assert_eq!(number(&connect(&directory), "SELECT COUNT(*) FROM thread_index"), 0);
}

#[tokio::test]
async fn a_damaged_message_keeps_no_other_from_the_index() {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    turn(&store, &lease, "where is the wrench").await;
    store.close().await;
    let conn = connect(&directory);
    conn.execute_batch(
        "UPDATE messages SET body = '{' WHERE position = 1;
         UPDATE messages SET body = CAST(x'ff' AS TEXT) WHERE position = 2; DELETE FROM thread_index;
         UPDATE events SET indexed = 0; UPDATE runs SET indexed = 0; UPDATE indexed SET event = 0;",
    )
    .unwrap();
    drop(conn);
    let store = SqlStore::open(&directory.path().join("belay.db"), StoreOptions::default()).unwrap();
    turn(&store, &open(&store, "other").await.lease, "the wrench again").await;
    assert!(hits(&store, "again").await > 0);
    assert_eq!(number(&connect(&directory), BEHIND), 0);
}

/// The index is missing, as if the disk refused its pages.
#[tokio::test]
async fn an_index_that_cannot_be_written_keeps_no_message_from_the_store() {
    let (store, directory) = sqlite();
    let lease = open(&store, "s").await.lease;
    turn(&store, &lease, "hi").await;
    connect(&directory).execute_batch("DROP TABLE message_index").unwrap();
    let mut last = None;
    for _ in 0..400 {
        last = Some(turn(&store, &lease, "and again").await); // 1,200 events: more than are left to wait
    }
    assert!(store.search(SearchQuery { words: "again".into(), ..SearchQuery::default() }).await.is_err());
    store.close().await;
    let store = SqlStore::open(&directory.path().join("belay.db"), StoreOptions::default()).unwrap();
    let record = store.run(last.unwrap()).await.unwrap().unwrap();
    assert_eq!(record.status, belay_protocol::RunStatus::Completed);
    assert_eq!(number(&connect(&directory), "SELECT COUNT(*) FROM runs"), 401);
}

/// The numbers of the events of each session after this one, and the last of all.
fn numbers(conn: &Connection, after: i64) -> Vec<(String, i64)> {
    let sql = "SELECT session, seq FROM events WHERE session IS NOT NULL AND seq > ?1 ORDER BY seq";
    let mut statement = conn.prepare(sql).unwrap();
    statement.query_map([after], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
}

/// Looks at the new events: none has a number that its session has used before.
async fn look(store: &SqlStore, path: &Path, newest: &mut HashMap<String, i64>, after: &mut i64) {
    store.ping().await.unwrap(); // what is relaxed is committed with it
    let conn = Connection::open(path).unwrap();
    for (session, number) in numbers(&conn, *after) {
        assert!(newest.get(&session).is_none_or(|newest| *newest < number), "{session} {number} {newest:?}");
        newest.insert(session, number);
    }
    let last = number(&conn, "SELECT MAX(seq) FROM events");
    assert!(last >= *after, "the newest event was deleted");
    *after = last;
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
        store = SqlStore::open(&path, StoreOptions::default()).unwrap();
        turn(&store, &open(&store, "s").await.lease, "again").await;
        look(&store, &path, &mut newest, &mut after).await;
    }
    store.close().await;
}
