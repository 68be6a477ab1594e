//! Threads: loading one, and the writes of a turn. Callers have checked the lease.

use std::sync::Arc;

use belay_protocol::{
    EventKind, Message, NewEvent, Outbound, RunId, SessionKey, SessionLifetime, SessionNotice, ThreadId,
    ThreadSnapshot, ThreadState, UnixMillis,
};
use uuid::Uuid;

use super::connection::Engine;
use super::lane_guard::Lane;
use super::ledger::append_events;
use super::outbox;
use super::rows;
use super::tx::{Done, Failure, Tx};
use crate::notices::behind_results;
use crate::value::params;

pub(super) fn insert_thread(
    tx: &mut Tx<'_>,
    session: &SessionKey,
    id: Uuid,
    lifetime: SessionLifetime,
    at: UnixMillis,
) -> Done<()> {
    tx.post(
        "INSERT INTO threads (id, session, state, last_active_at, ephemeral) VALUES (?1, ?2, 'idle', ?3, ?4)",
        params![id, session.as_str(), at.0, lifetime == SessionLifetime::Ephemeral],
    )?;
    Ok(())
}

/// The messages of a thread (`?1`) that the model gets: visible ones of ended turns of the session (`?3`), after the
/// summary (`?2`).
pub(super) const SEEN: &str = "SELECT position, body FROM messages
     WHERE thread = ?1 AND position > ?2 AND visibility = 'visible' AND scope = 'thread' AND summarised = 0
       AND (run_id IS NULL OR run_id NOT IN (SELECT id FROM runs WHERE indexed = 0 AND session = ?3 AND ended_at IS NULL))
     ORDER BY position";

/// A thread as the model gets it, with its summary.
pub(super) fn snapshot(tx: &mut Tx<'_>, session: &SessionKey, thread: Uuid) -> Done<ThreadSnapshot> {
    let head = tx.row(
        "SELECT id, state, summary, summary_upto, skills IS NOT NULL AS has_skills FROM threads WHERE id = ?1",
        params![thread],
        |row| {
            Ok((
                rows::id(row, "id")?,
                rows::thread_state(row)?,
                row.get("summary")?,
                row.get::<_, i64>("summary_upto")?,
                row.get("has_skills")?,
            ))
        },
    )?;
    let (id, state, summary, upto, has_skills) =
        head.ok_or_else(|| Failure::damaged("a session without its thread"))?;
    let messages = behind_results(tx.rows(SEEN, params![thread, upto, session.as_str()], rows::message)?);
    Ok(ThreadSnapshot { id, state, summary, messages, has_skills })
}

/// Appends the first messages of a turn to the active thread. After that, earlier undone turns cannot be redone.
pub(super) fn begin_turn(
    tx: &mut Tx<'_>,
    lane: &Lane,
    run: RunId,
    history: &[Message],
    message: &Message,
    at: UnixMillis,
) -> Done<()> {
    if lane.undone > 0 {
        tx.post(
            "UPDATE messages SET visibility = 'cleared' WHERE thread = ?1 AND visibility = 'undone'",
            params![lane.thread],
        )?;
    }
    let turn = lane.turns + 1;
    for earlier in history {
        append_message(tx, &Place { thread: lane.thread, turn, run: None, at }, earlier)?;
    }
    append_message(tx, &Place { thread: lane.thread, turn, run: Some(run), at }, message)?;
    tx.post(
        "UPDATE threads SET state = 'processing', turns = ?2, undone = 0, last_active_at = MAX(last_active_at, ?3)
         WHERE id = ?1",
        params![lane.thread, turn, at.0],
    )?;
    Ok(())
}

/// The destination of a message.
pub(super) struct Place {
    pub(super) thread: Uuid,
    pub(super) turn: u32,
    /// `None` for a history that a client has sent.
    pub(super) run: Option<RunId>,
    pub(super) at: UnixMillis,
}

fn append_message(tx: &mut Tx<'_>, place: &Place, message: &Message) -> Done<()> {
    tx.post(
        "INSERT INTO messages (thread, position, turn, run_id, role, scope, at, body)
         VALUES (?1, (SELECT COALESCE(MAX(position), 0) + 1 FROM messages WHERE thread = ?1), ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            place.thread,
            place.turn,
            place.run.map(|run| run.as_uuid()),
            rows::role_word(message),
            rows::scope_word(message.scope),
            place.at.0,
            rows::to_json(message)?
        ],
    )?;
    Ok(())
}

/// Locks the row of a session until the commit, if there is one. SQLite has one writer, and does nothing.
///
/// A function that locks other rows too, and appends a notice, calls it first: the owner of the lane holds this row when
/// it locks those.
pub(super) fn lock_session(tx: &mut Tx<'_>, session: &SessionKey) -> Done<()> {
    match tx.engine() {
        Engine::Sqlite => Ok(()),
        Engine::Postgres => tx.post("SELECT 1 FROM sessions WHERE session = ?1 FOR UPDATE", params![session.as_str()]),
    }
}

/// Appends a notice to the active thread of a session, and its event. Creates the session if there is none. The owner
/// of the lane reads the notice with the next load.
pub(super) fn append_notice(tx: &mut Tx<'_>, notice: &SessionNotice, at: UnixMillis) -> Done<()> {
    let fresh = ThreadId::new().as_uuid();
    let made = tx.exec(
        "INSERT INTO sessions (session, owner, epoch, thread, opened_at) VALUES (?1, NULL, 1, ?2, ?3) ON CONFLICT DO NOTHING",
        params![notice.session.as_str(), fresh, at.0],
    )?;
    if made > 0 {
        insert_thread(tx, &notice.session, fresh, SessionLifetime::Lasting, at)?;
    }
    // First the lock, then the read: one statement that waits for the lock would join the new row of the session with
    // the threads as they were before.
    lock_session(tx, &notice.session)?;
    let place = tx.row(
        "SELECT s.thread, t.turns, s.options ->> 'callback_url' AS callback
         FROM sessions s JOIN threads t ON t.id = s.thread WHERE s.session = ?1",
        params![notice.session.as_str()],
        |row| {
            let callback: Option<String> = row.get("callback")?;
            Ok((row.get::<_, Uuid>("thread")?, row.get::<_, u32>("turns")?, callback))
        },
    )?;
    let (thread, turn, callback) = place.ok_or_else(|| Failure::damaged("a session without its thread"))?;
    let message = Message::notice(&notice.text);
    append_message(tx, &Place { thread, turn, run: None, at }, &message)?;
    set_thread(tx, thread, None, at)?;
    if let Some(url) = callback {
        outbox::insert(tx, &Outbound::callback_of_notice(&url, &notice.session, &message.for_people()))?;
    }
    let kind = EventKind::Notice { text: message.for_people().into_owned() };
    append_events(tx, &[NewEvent { at, session: Some(notice.session.clone()), run_id: None, kind }])
}

pub(super) fn append_messages(tx: &mut Tx<'_>, place: &Place, messages: &[Arc<Message>]) -> Done<()> {
    messages.iter().try_for_each(|message| append_message(tx, place, message))
}

/// Records that the thread was used, and its new state if there is one. A completed thread stays completed.
pub(super) fn set_thread(tx: &mut Tx<'_>, thread: Uuid, state: Option<ThreadState>, at: UnixMillis) -> Done<()> {
    tx.post(
        "UPDATE threads SET state = CASE state WHEN 'completed' THEN state ELSE COALESCE(?2, state) END,
                            last_active_at = MAX(last_active_at, ?3)
         WHERE id = ?1",
        params![thread, state.map(rows::thread_state_word), at.0],
    )?;
    Ok(())
}
