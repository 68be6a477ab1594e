//! Reads of all conversations, including those that are not active, and sessions that lists leave out.

use std::sync::Arc;

use belay_protocol::{SessionKey, ThreadId, ThreadSummary, TranscriptLine};

use super::connection::Connection;
use super::rows;
use super::tx::{Done, Tx, rows as all, to_sql_int};
use crate::limits::PAGE_MAX;
use crate::value::params;

pub(super) fn threads(conn: &Connection, session: &SessionKey) -> Done<Vec<ThreadSummary>> {
    all(
        conn,
        "SELECT t.id, t.state, t.last_active_at, t.summary, s.session IS NOT NULL AS active
         FROM threads t LEFT JOIN sessions s ON s.session = t.session AND s.thread = t.id
         WHERE t.session = ?1 ORDER BY active, t.last_active_at, t.id",
        params![session.as_str()],
        |row| {
            Ok(ThreadSummary {
                thread: rows::id(row, "id")?,
                state: rows::thread_state(row)?,
                active: row.get("active")?,
                last_active_at: rows::date(row, "last_active_at")?,
                summary: row.get("summary")?,
            })
        },
    )
}

/// Leaves a session out of lists until its next run, or lists it again.
pub(super) fn set_hidden(tx: &mut Tx<'_>, session: &SessionKey, hidden: bool) -> Done<()> {
    tx.post("UPDATE sessions SET hidden = ?2 WHERE session = ?1", params![session.as_str(), hidden])?;
    Ok(())
}

/// Lists a session again for its next run, if it is left out.
pub(super) fn show(tx: &mut Tx<'_>, session: &SessionKey, is_hidden: bool) -> Done<()> {
    if is_hidden { set_hidden(tx, session, false) } else { Ok(()) }
}

pub(super) fn transcript(conn: &Connection, thread: ThreadId, after: u64, limit: u32) -> Done<Vec<TranscriptLine>> {
    all(
        conn,
        "SELECT position, run_id, at, body FROM messages
         WHERE thread = ?1 AND position > ?2 AND visibility = 'visible' AND scope = 'thread'
         ORDER BY position LIMIT ?3",
        params![thread.as_uuid(), to_sql_int(after), limit.min(PAGE_MAX)],
        |row| {
            let (id, message) = rows::message(row)?;
            let (run_id, at) = (rows::optional_id(row, "run_id")?, rows::date(row, "at")?);
            Ok(TranscriptLine { id, run_id, at, message: Arc::clone(&message) })
        },
    )
}
