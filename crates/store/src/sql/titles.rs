//! Titles of conversations that a model has written.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::store::TITLE_TRIES;
use belay_protocol::{Durability, Message, SessionKey, StoreError, TitleStore, Untitled};
use uuid::Uuid;

use super::connection::{Connection, Engine};
use super::tx::{self, Done, Tx, from_sql_int, to_sql_int};
use super::{SqlStore, rows};
use crate::value::params;

/// Messages that a title is made of. 6: three turns say what a conversation is about.
const MESSAGES: u32 = 6;

#[async_trait]
impl TitleStore for SqlStore {
    async fn untitled(&self, session: &SessionKey, limit: u32) -> Result<Vec<Untitled>, StoreError> {
        let session = session.clone();
        self.read(move |conn| untitled(conn, &session, limit)).await
    }

    async fn keep_title(&self, untitled: &Untitled, title: Option<String>) -> Result<(), StoreError> {
        let (thread, first) = (untitled.thread.as_uuid(), untitled.first);
        self.write(Durability::Committed, move |tx| keep(tx, thread, first, title.as_deref())).await
    }
}

/// The visible messages of a thread (`t.id`) with this role.
macro_rules! said_by {
    ($role:literal) => {
        concat!(
            "EXISTS (SELECT 1 FROM messages m WHERE m.thread = t.id AND m.role = '",
            $role,
            "' AND m.scope = 'thread' AND m.visibility = 'visible')"
        )
    };
}

fn untitled(conn: &Connection, session: &SessionKey, limit: u32) -> Done<Vec<Untitled>> {
    let threads = tx::rows(
        conn,
        concat!(
            "SELECT t.id FROM threads t
             WHERE t.session = ?1 AND t.title IS NULL AND t.title_tries < ?2 AND t.ephemeral = 0
               AND (t.state = 'idle' OR t.state = 'completed') AND ",
            said_by!("user"),
            " AND ",
            said_by!("assistant"),
            " ORDER BY t.last_active_at DESC, t.id DESC LIMIT ?3"
        ),
        params![session.as_str(), TITLE_TRIES, limit],
        |row| row.get::<_, Uuid>("id"),
    )?;
    let mut found = Vec::with_capacity(threads.len());
    for thread in threads {
        let messages: Vec<(i64, Arc<Message>)> = tx::rows(
            conn,
            "SELECT position, body FROM messages
             WHERE thread = ?1 AND scope = 'thread' AND visibility = 'visible' AND (role = 'user' OR role = 'assistant')
             ORDER BY position LIMIT ?2",
            params![thread, MESSAGES],
            |row| Ok((row.get("position")?, Arc::new(rows::from_json(&row.get::<_, String>("body")?)?))),
        )?;
        let Some(first) = messages.first().map(|(position, _)| from_sql_int(*position)) else { continue };
        let messages = messages.into_iter().map(|(_, message)| message).collect();
        found.push(Untitled { thread: thread.into(), first, messages });
    }
    Ok(found)
}

/// Gives the current conversation of a session this title, or none of its own.
pub(super) fn set(tx: &mut Tx<'_>, session: &SessionKey, title: Option<&str>) -> Done<()> {
    tx.post(
        "UPDATE threads SET title = ?2 WHERE id = (SELECT thread FROM sessions WHERE session = ?1)",
        params![session.as_str(), title],
    )?;
    Ok(())
}

fn keep(tx: &mut Tx<'_>, thread: Uuid, first: u64, title: Option<&str>) -> Done<()> {
    if tx.engine() == Engine::Postgres {
        // Each change of the conversation locks its session first. The statement below waits for none, and sees all.
        tx.post(
            "SELECT 1 FROM sessions s JOIN threads t ON t.session = s.session WHERE t.id = ?1 FOR UPDATE OF s",
            params![thread],
        )?;
    }
    // Without its first message, the conversation was cleared or changed while the model wrote the title.
    tx.post(
        "UPDATE threads SET title = ?3, title_tries = title_tries + CASE WHEN ?3 IS NULL THEN 1 ELSE 0 END
         WHERE id = ?1 AND title IS NULL AND EXISTS
            (SELECT 1 FROM messages WHERE thread = ?1 AND position = ?2 AND visibility = 'visible')",
        params![thread, to_sql_int(first), title],
    )?;
    Ok(())
}
