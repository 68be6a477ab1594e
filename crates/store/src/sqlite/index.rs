//! Search: the index of words. It is written with each message, in the same commit.
//!
//! The index contains no texts; `messages.index_row` points to its rows. Each search checks the visibility of the
//! message itself, so that an undone or cleared message is not found from that commit on.

use belay_protocol::{Found, Message, MessageBody, SearchQuery};
use rusqlite::{Connection, params};
use uuid::Uuid;

use super::rows;
use super::tx::{self, Done, Tx, from_sql_int};
use crate::excerpt::snippet;
use crate::limits::search_limit;

/// Adds the words of a message to the index. Returns the row of the index; `None`: the message has no searchable words.
pub(super) fn keep(tx: &mut Tx<'_>, message: &Message) -> Done<Option<u64>> {
    let spoken = matches!(message.body, MessageBody::User { .. } | MessageBody::Assistant { .. });
    if !spoken || !message.scope.is_thread() || message.says_nothing() {
        return Ok(None);
    }
    tx.exec("INSERT INTO message_index (text) VALUES (?1)", params![message.text()])?;
    Ok(Some(tx.last_insert()))
}

/// Deletes the words of a thread's messages up to a position. Called before the deletion of the messages, which point
/// to the rows.
pub(super) fn forget(tx: &mut Tx<'_>, thread: Uuid, upto: i64) -> Done<()> {
    tx.exec(
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
         ORDER BY message_index.rank, m.at DESC, m.position DESC LIMIT ?3",
        params![matching(&terms), query.session.as_ref().map(|key| key.as_str()), search_limit(query)],
        |row| {
            let message: Message = rows::from_json(&row.get::<_, String>("body")?)?;
            Ok(Found {
                session: row.get::<_, String>("session")?.into(),
                thread: rows::id(row, "thread")?,
                id: from_sql_int(row.get("position")?),
                role: row.get("role")?,
                snippet: snippet(message.text(), &terms),
                run_id: rows::optional_id(row, "run_id")?,
                at: rows::date(row, "at")?,
            })
        },
    )
}

/// The terms in the syntax of FTS5: quoted, so that none is an operator, and each a prefix of a word.
///
/// FTS5, "Full-text Query Syntax": <https://www.sqlite.org/fts5.html>
fn matching(terms: &[String]) -> String {
    terms.iter().map(|term| format!("\"{term}\"*")).collect::<Vec<_>>().join(" ")
}
