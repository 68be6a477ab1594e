//! Indexing: one writer at a time.

use belay_protocol::{Archive, SearchQuery, StoreHealth};
use belay_store::SqlStore;
use tokio::task::JoinSet;

use super::holder::waiting;
use super::two::two;
use crate::kit::*;

async fn hits(store: &SqlStore, words: &str) -> usize {
    let query = SearchQuery { words: words.into(), limit: 1_000, ..SearchQuery::default() };
    store.search(query).await.unwrap().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_another_writer_indexes_is_left_to_it() {
    let Some(two) = two().await else { return };
    let lease = open(&two.one, "s").await.lease;
    turn(&two.one, &lease, "where is the wrench").await;
    let pinged = two.committed().await;
    let indexing = two.hold("SELECT event FROM indexed FOR UPDATE", &pinged, "SELECT 1").await;
    two.one.close().await; // indexes the rest, if nobody else does
    assert_eq!(two.value("SELECT event FROM indexed").await, "0");
    two.other.ping().await.unwrap();
    indexing.await.unwrap();
    assert_eq!(hits(&two.other, "wrench").await, 2, "the question and the answer");
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_waits_for_the_writer_that_indexes() {
    let Some(two) = two().await else { return };
    let kept = open(&two.other, "kept").await.lease;
    turn(&two.other, &kept, "where is the wrench").await;
    let lease = open(&two.one, "s").await.lease;
    turn(&two.one, &lease, "where is the hammer").await;
    // What an indexing writer does for the kept session and everything before the deletion.
    let index = "INSERT INTO message_index (rowid, words)
                     SELECT row_number() OVER (ORDER BY thread, position), '''wrench'''::tsvector FROM messages;
                 UPDATE messages m SET index_row = n.row FROM (SELECT thread, position, row_number() OVER (ORDER BY thread, position) AS row
                                                               FROM messages) n
                     WHERE n.thread = m.thread AND n.position = m.position;
                 INSERT INTO thread_index SELECT id, 2 FROM threads;
                 UPDATE runs SET indexed = 1; UPDATE events SET indexed = 1;
                 UPDATE indexed SET event = (SELECT MAX(seq) FROM events)";
    // It waits before it has read anything. A failure would be hidden: the writer repeats the deletion.
    let waits = format!(
        "{} AND EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'
                                          AND query = 'SELECT event FROM indexed FOR UPDATE')",
        waiting(1)
    );
    let indexing = two.hold("SELECT event FROM indexed FOR UPDATE", &waits, index).await;
    let removed = two.one.delete_session(&lease, at(3_000)).await.unwrap();
    indexing.await.unwrap();
    assert_eq!((removed.messages, removed.runs), (2, 1));
    assert_eq!(two.value("SELECT COUNT(*) FROM message_index").await, "2", "those of the kept session");
    assert_eq!(two.value("SELECT COUNT(*) FROM messages WHERE index_row IS NOT NULL").await, "2");
    two.close().await;
}

const SESSIONS: usize = 4;
const TURNS: usize = 25;
/// A question and an answer in each turn of both stores.
const MESSAGES: usize = 2 * 2 * SESSIONS * TURNS;

/// Turns in several sessions at once, so that they share transactions, with a search after each.
async fn talk(store: SqlStore, name: &str) {
    let mut sessions = JoinSet::new();
    for n in 0..SESSIONS {
        let (store, session) = (store.clone(), format!("{name} {n}"));
        sessions.spawn(async move {
            let lease = open(&store, &session).await.lease;
            for _ in 0..TURNS {
                turn(&store, &lease, "where is the wrench").await;
                hits(&store, "wrench").await;
            }
        });
    }
    sessions.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_message_is_indexed_once() {
    let Some(two) = two().await else { return };
    tokio::join!(talk(two.one.clone(), "one"), talk(two.other.clone(), "other"));
    two.one.close().await;
    assert_eq!(hits(&two.other, "wrench").await, MESSAGES);
    let rows = "SELECT COUNT(*) || ' ' || (SELECT COUNT(DISTINCT index_row) FROM messages) FROM message_index";
    assert_eq!(two.value(rows).await, format!("{0} {0}", MESSAGES));
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    println!("deadlocks: {}", two.value(deadlocks).await);
    two.close().await;
}
