//! The indexes that are written behind the reply, and search.
//!
//! A message waits for its two commits, and each further index costs both of them a page. So what only rare queries need
//! is indexed later, in batches: the events of each run, the ended runs of each session, and the words of messages. The
//! table `indexed` has the last event of the last batch, so a crash loses nothing: the next start continues there.
//! The end of a run appends an event in the same transaction. A message of a running turn is indexed with the next event of
//! its session, at the latest with the end of its run.
//!
//! Of several writers one indexes at a time: it holds a lock on the row of `indexed`. So each number of an index row is
//! given once.
//!
//! `message_index` contains no texts; `messages.index_row` points to its rows. Each search checks the visibility of the
//! message itself, so that an undone or cleared message is not found from that commit on.

use std::time::Duration;

use belay_protocol::{Found, Message, MessageBody, SearchQuery};
use uuid::Uuid;

use super::connection::{Connection, Engine, Row};
use super::rows;
use super::tx::{self, Done, Failure, Tx, from_sql_int};
use crate::excerpt::snippet;
use crate::limits::search_limit;
use crate::postgres::{all_words, any_words, words_vector};
use crate::value::params;

/// The maximum number of events of one batch, for which a write may wait. 128: the events of about 32 messages. All new
/// messages of their sessions belong to the batch, also a long history that a request carried.
const BATCH: u32 = 128;

/// Indexes everything that is not indexed yet. Waits for another writer that indexes. No other one does from here to the
/// commit, so that the caller may delete messages and their index rows.
pub(super) fn catch_up(tx: &mut Tx<'_>) -> Done<()> {
    while next_batch_in_turn(tx)?.more {}
    Ok(())
}

/// The last indexed event.
pub(super) fn position(conn: &Connection) -> Done<u64> {
    let position = tx::row(conn, "SELECT event FROM indexed", [], |row| Ok(from_sql_int(row.get(0)?)))?;
    position.ok_or_else(|| Failure::damaged("the last indexed event is missing"))
}

/// The result of a batch.
pub(super) struct Batch {
    /// The last indexed event.
    pub(super) upto: u64,
    /// Whether more events may be left.
    pub(super) more: bool,
}

/// Indexes the next events, with the runs and messages of their sessions. While another writer indexes, it indexes nothing
/// and does not wait.
pub(super) fn next_batch(tx: &mut Tx<'_>) -> Done<Batch> {
    counted(tx, |tx| match tx.engine() {
        Engine::Sqlite => index_events(tx),
        Engine::Postgres => match tx.row("SELECT event FROM indexed FOR UPDATE SKIP LOCKED", [], |_| Ok(()))? {
            Some(()) => index_events(tx),
            None => Ok(Batch { upto: tx.read(position)?, more: false }),
        },
    })
}

/// Like [`next_batch`], but waits for another writer that indexes.
pub(super) fn next_batch_in_turn(tx: &mut Tx<'_>) -> Done<Batch> {
    counted(tx, |tx| {
        if tx.engine() == Engine::Postgres {
            tx.first()?; // another writer that indexes may wait for messages and runs
            tx.post("SELECT event FROM indexed FOR UPDATE", [])?;
        }
        index_events(tx)
    })
}

/// How long a transaction may compute the words of large texts, beyond its usual pause. Meanwhile other writers index
/// nothing, and a search or a deletion waits for it.
const COMPUTING: Duration = Duration::from_secs(55);

/// Counts the statements as those of the indexing.
fn counted(tx: &mut Tx<'_>, index: impl FnOnce(&mut Tx<'_>) -> Done<Batch>) -> Done<Batch> {
    tx.may_pause(COMPUTING);
    let before = tx.effects.statements;
    let batch = index(tx);
    tx.may_pause(Duration::ZERO);
    tx.effects.indexing += tx.effects.statements - before;
    tx.effects.statements = before;
    batch
}

/// The caller has locked the row of `indexed` in an earlier statement: this one sees what the previous holder has indexed.
fn index_events(tx: &mut Tx<'_>) -> Done<Batch> {
    let span = tx.row(
        "SELECT i.event, (SELECT MAX(seq) FROM (SELECT seq FROM events WHERE seq > i.event ORDER BY seq LIMIT ?1)) FROM indexed i",
        params![BATCH],
        |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?)),
    )?;
    let (after, upto) = span.ok_or_else(|| Failure::damaged("the last indexed event is missing"))?;
    let Some(upto) = upto else { return Ok(Batch { upto: from_sql_int(after), more: false }) };
    tx.post(
        "UPDATE runs SET indexed = 1 WHERE ended_at IS NOT NULL AND indexed = 0
           AND id IN (SELECT run_id FROM events WHERE seq > ?1 AND seq <= ?2)",
        params![after, upto],
    )?;
    let threads = tx.rows(
        "SELECT t.id, COALESCE(i.upto, 0) FROM threads t LEFT JOIN thread_index i ON i.thread = t.id
         WHERE t.session IN (SELECT session FROM events WHERE seq > ?1 AND seq <= ?2)
           AND EXISTS (SELECT 1 FROM messages m WHERE m.thread = t.id AND m.position > COALESCE(i.upto, 0))",
        params![after, upto],
        |row| Ok((row.get::<_, Uuid>(0)?, row.get::<_, i64>(1)?)),
    )?;
    for (thread, indexed) in threads {
        index_messages(tx, thread, indexed)?;
    }
    tx.post("UPDATE events SET indexed = 1 WHERE seq > ?1 AND seq <= ?2", params![after, upto])?;
    tx.post("UPDATE indexed SET event = ?1", params![upto])?;
    Ok(Batch { upto: from_sql_int(upto), more: upto - after >= i64::from(BATCH) })
}

/// Adds the words of a thread's messages after this position to the index.
fn index_messages(tx: &mut Tx<'_>, thread: Uuid, after: i64) -> Done<()> {
    let messages = tx.rows(
        "SELECT position, role, scope, body FROM messages WHERE thread = ?1 AND position > ?2 ORDER BY position",
        params![thread, after],
        |row| Ok((row.get::<_, i64>("position")?, words(row)?)),
    )?;
    let Some((last, _)) = messages.last() else { return Ok(()) };
    let upto = *last;
    let next = "SELECT COALESCE(MAX(index_row), 0) FROM messages";
    let mut row: i64 = tx.row(next, [], |row| row.get(0))?.unwrap_or(0);
    for (position, words) in messages {
        let Some(words) = words else { continue };
        row += 1;
        let words = in_form_of(tx.engine(), words);
        tx.post("INSERT INTO message_index (rowid, text) VALUES (?1, ?2)", params![row, words])?;
        tx.post(
            "UPDATE messages SET index_row = ?3 WHERE thread = ?1 AND position = ?2",
            params![thread, position, row],
        )?;
    }
    tx.post(
        "INSERT INTO thread_index (thread, upto) VALUES (?1, ?2) ON CONFLICT (thread) DO UPDATE SET upto = excluded.upto",
        params![thread, upto],
    )?;
    Ok(())
}

/// The words of a message as the full-text index of an engine takes them: the row has its columns `role`, `scope` and
/// `body`. `None`: it has no searchable words, or it is damaged.
pub(crate) fn words_for(engine: Engine, row: &Row<'_>) -> Done<Option<String>> {
    Ok(words(row)?.map(|words| in_form_of(engine, words)))
}

fn in_form_of(engine: Engine, words: String) -> String {
    match engine {
        Engine::Sqlite => words,
        Engine::Postgres => words_vector(&words),
    }
}

/// The searchable words of a message. `None`: it has none, or it is damaged.
fn words(row: &Row<'_>) -> Done<Option<String>> {
    if !matches!(row.get_ref("role")?.as_str(), Some("user" | "assistant"))
        || row.get_ref("scope")?.as_str() != Some("thread")
    {
        return Ok(None);
    }
    let Ok(body) = row.get::<_, String>("body") else { return Ok(None) };
    let Ok(message) = rows::from_json::<Message>(&body) else { return Ok(None) };
    let spoken = matches!(message.body, MessageBody::User { .. } | MessageBody::Assistant { .. });
    Ok((spoken && !message.says_nothing()).then(|| message.text().to_owned()))
}

/// Deletes the words of a thread's messages up to a position. Called before the deletion of the messages, which point
/// to the rows.
pub(super) fn forget(tx: &mut Tx<'_>, thread: Uuid, upto: i64) -> Done<()> {
    tx.post(
        "DELETE FROM message_index WHERE rowid IN
             (SELECT index_row FROM messages WHERE thread = ?1 AND position <= ?2 AND index_row IS NOT NULL)",
        params![thread, upto],
    )?;
    Ok(())
}

pub(super) fn search(conn: &Connection, query: &SearchQuery) -> Done<Vec<Found>> {
    let terms = query.terms();
    if terms.is_empty() {
        return Ok(Vec::new());
    }
    tx::rows(
        conn,
        "SELECT t.session, m.thread, m.position, m.role, m.run_id, m.at, m.body
         FROM message_index JOIN messages m ON m.index_row = message_index.rowid JOIN threads t ON t.id = m.thread
         WHERE message_index MATCH ?1 AND m.visibility = 'visible' AND (?2 IS NULL OR t.session = ?2)
         ORDER BY message_index.rank, m.at DESC, m.position DESC LIMIT ?3 OFFSET ?4",
        params![
            matching(conn.engine(), &terms),
            query.session.as_ref().map(|key| key.as_str()),
            search_limit(query),
            query.skip
        ],
        |row| found(row, &terms),
    )
}

/// A found message.
pub(super) fn found(row: &Row<'_>, terms: &[String]) -> Done<Found> {
    let message: Message = rows::from_json(&row.get::<_, String>("body")?)?;
    Ok(Found {
        session: row.get::<_, String>("session")?.into(),
        thread: rows::id(row, "thread")?,
        id: from_sql_int(row.get("position")?),
        role: row.get("role")?,
        snippet: snippet(&message.for_people(), terms),
        run_id: rows::optional_id(row, "run_id")?,
        at: rows::date(row, "at")?,
    })
}

/// The condition that all terms are prefixes of words.
fn matching(engine: Engine, terms: &[String]) -> String {
    match engine {
        Engine::Sqlite => joined(terms, " "),
        Engine::Postgres => all_words(terms),
    }
}

/// Like [`matching`], but any of the terms is enough.
pub(super) fn matching_any(engine: Engine, terms: &[String]) -> String {
    match engine {
        Engine::Sqlite => joined(terms, " OR "),
        Engine::Postgres => any_words(terms),
    }
}

/// The terms in the syntax of FTS5: quoted, so that none is an operator, and each a prefix of a word.
///
/// FTS5, "Full-text Query Syntax": <https://www.sqlite.org/fts5.html>
fn joined(terms: &[String], by: &str) -> String {
    terms.iter().map(|term| format!("\"{term}\"*")).collect::<Vec<_>>().join(by)
}
