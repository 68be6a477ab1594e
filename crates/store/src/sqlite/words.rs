//! Finding what was said: the index of words, kept with each message in its commit.
//!
//! The index has no texts; its rows are found through `messages.doc`. Whether a message may be found is asked of the
//! message itself at each search, so that what was taken back or forgotten is not found from that commit on.

use belay_protocol::{Found, Message, MessageBody, SearchQuery};
use rusqlite::{Connection, params};

use super::rows;
use super::tx::{self, Done, Tx, from_sql_int};
use crate::excerpt::snippet;
use crate::limits::search_limit;

/// Puts the words of a message into the index. Its row there; `None`: it has none that are looked for.
pub(super) fn keep(tx: &mut Tx<'_>, message: &Message) -> Done<Option<u64>> {
    let spoken = matches!(message.body, MessageBody::User { .. } | MessageBody::Assistant { .. });
    if !spoken || !message.scope.is_thread() || message.says_nothing() {
        return Ok(None);
    }
    tx.exec("INSERT INTO message_words (text) VALUES (?1)", params![message.text()])?;
    Ok(Some(tx.last_insert()))
}

/// Indexes messages that an earlier version has written; whether there are more.
pub(super) fn keep_older(tx: &mut Tx<'_>, most: u32) -> Done<bool> {
    let upto = tx.row("SELECT thread, position FROM words_upto", [], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
    })?;
    let Some((thread, position)) = upto else { return Ok(false) };
    let older = tx.rows(
        "SELECT thread, position, doc, body FROM messages WHERE (thread, position) > (?1, ?2)
         ORDER BY thread, position LIMIT ?3",
        params![thread, position, most],
        |row| {
            let known = row.get::<_, Option<i64>>("doc")?.is_some();
            let message: Option<Message> = rows::readable(row, "a message", "body")?.filter(|_| !known);
            Ok((row.get::<_, String>("thread")?, row.get::<_, i64>("position")?, message))
        },
    )?;
    for (thread, position, message) in &older {
        let Some(doc) = message.as_ref().map(|message| keep(tx, message)).transpose()?.flatten() else { continue };
        tx.exec(
            "UPDATE messages SET doc = ?3 WHERE thread = ?1 AND position = ?2",
            params![thread, position, tx::to_sql_int(doc)],
        )?;
    }
    match older.last() {
        Some((thread, position, _)) if older.len() >= most as usize => {
            tx.exec("UPDATE words_upto SET thread = ?1, position = ?2", params![thread, position])?;
            Ok(true)
        }
        _ => {
            tx.exec("DELETE FROM words_upto", [])?;
            Ok(false)
        }
    }
}

/// Deletes the words of a thread's messages up to a position. Before the messages themselves, which know their rows.
pub(super) fn forget(tx: &mut Tx<'_>, thread: &str, upto: i64) -> Done<()> {
    tx.exec(
        "DELETE FROM message_words WHERE rowid IN
             (SELECT doc FROM messages WHERE thread = ?1 AND position <= ?2 AND doc IS NOT NULL)",
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
         FROM message_words JOIN messages m ON m.doc = message_words.rowid JOIN threads t ON t.id = m.thread
         WHERE message_words MATCH ?1 AND m.shown = 'visible' AND (?2 IS NULL OR t.session = ?2)
         ORDER BY message_words.rank, m.at DESC, m.position DESC LIMIT ?3",
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

/// Terms as FTS5 wants them: quoted, so that none is taken for an operator, and each the beginning of a word.
///
/// FTS5, "Full-text Query Syntax": <https://www.sqlite.org/fts5.html>
fn matching(terms: &[String]) -> String {
    terms.iter().map(|term| format!("\"{term}\"*")).collect::<Vec<_>>().join(" ")
}
