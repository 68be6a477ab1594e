//! Changes of the visible part of a thread. Rows are marked and never deleted.
//!
//! A running turn is never changed: its owner still appends to it, and half a turn would be no valid conversation.

use belay_protocol::store::LastTurn;
use belay_protocol::{
    EditOutcome, Lease, Message, NewEvent, SessionKey, SessionLifetime, StoreError, ThreadEdit, ThreadId,
    TurnCompaction, UnixMillis,
};
use uuid::Uuid;

use super::connection::Connection;
use super::lane_guard::{Lane, lane};
use super::ledger::append_events;
use super::rows;
use super::skills;
use super::threads::{insert_thread, snapshot};
use super::tx::{Done, Failure, Tx};
use super::uploads;
use crate::limits::{UNDO_DEPTH, edited};
use crate::value::params;

/// The turns of a thread (`?1`) of a session (`?2`) that have not ended.
macro_rules! turns_at_work {
    () => {
        "(SELECT turn FROM runs WHERE indexed = 0 AND session = ?2 AND thread = ?1 AND ended_at IS NULL)"
    };
}

/// Whether a message is a notice. A notice belongs to no turn, and the store may add one at any time. Therefore the
/// numbers of messages that a lane passes never count notices.
macro_rules! notice {
    () => {
        "(role = 'system' AND COALESCE(CAST(body ->> 'untrusted' AS TEXT), '') IN ('1', 'true'))"
    };
}

/// `fresh` is the id of the thread that `/new` opens. The caller chooses it, so that a repeated execution has the same
/// result.
pub(super) fn edit_thread(
    tx: &mut Tx<'_>,
    lease: &Lease,
    edit: ThreadEdit,
    fresh: ThreadId,
    at: UnixMillis,
) -> Done<EditOutcome> {
    let lane = lane(tx, lease)?;
    let session = &lease.session;
    let done = match edit {
        ThreadEdit::Undo => undo(tx, &lane, session)?,
        ThreadEdit::Redo => redo(tx, &lane)?,
        ThreadEdit::Clear => clear(tx, &lane, session)?,
        ThreadEdit::New => {
            complete(tx, &lane)?;
            let fresh = fresh.as_uuid();
            let lifetime = lifetime(tx, &lane)?;
            insert_thread(tx, session, fresh, lifetime, at)?;
            return activate(tx, session, fresh, edit, at);
        }
        ThreadEdit::Resume(earlier) => {
            let earlier = earlier.as_uuid();
            let found = tx.row(
                "SELECT 1 FROM threads WHERE id = ?1 AND session = ?2",
                params![earlier, session.as_str()],
                |_| Ok(()),
            )?;
            if found.is_none() || earlier == lane.thread {
                return Ok(EditOutcome::Nothing);
            }
            complete(tx, &lane)?;
            set_idle(tx, &Lane { thread: earlier, ..lane }, session, at)?;
            return activate(tx, session, earlier, edit, at);
        }
        ThreadEdit::Fork => {
            let fresh = fresh.as_uuid();
            let lifetime = lifetime(tx, &lane)?;
            insert_thread(tx, session, fresh, lifetime, at)?;
            if !copy(tx, &lane, session, fresh)? {
                tx.post("DELETE FROM threads WHERE id = ?1", params![fresh])?;
                return Ok(EditOutcome::Nothing);
            }
            complete(tx, &lane)?;
            return activate(tx, session, fresh, edit, at);
        }
    };
    if !done {
        return Ok(EditOutcome::Nothing);
    }
    set_idle(tx, &lane, session, at)?;
    append_events(tx, &[edited(session, edit, at)])?;
    Ok(EditOutcome::Done(snapshot(tx, session, lane.thread)?))
}

/// Makes a thread the active one.
fn activate(
    tx: &mut Tx<'_>,
    session: &SessionKey,
    thread: Uuid,
    edit: ThreadEdit,
    at: UnixMillis,
) -> Done<EditOutcome> {
    tx.post("UPDATE sessions SET thread = ?2 WHERE session = ?1", params![session.as_str(), thread])?;
    append_events(tx, &[edited(session, edit, at)])?;
    Ok(EditOutcome::Done(snapshot(tx, session, thread)?))
}

/// Copies the part of a thread that the model gets: the summary, and the visible messages of ended turns after it. The
/// copy skips no message, whatever the original skips, because its first new message may have any position.
fn copy(tx: &mut Tx<'_>, lane: &Lane, session: &SessionKey, to: Uuid) -> Done<bool> {
    let messages = tx.exec(
        concat!(
            "INSERT INTO messages (thread, position, turn, run_id, role, scope, at, body)
             SELECT ?3, position, turn, run_id, role, scope, at, body FROM messages
             WHERE thread = ?1 AND position > (SELECT summary_upto FROM threads WHERE id = ?1)
               AND visibility = 'visible' AND scope = 'thread' AND summarised = 0 AND turn NOT IN ",
            turns_at_work!()
        ),
        params![lane.thread, session.as_str(), to],
    )?;
    uploads::refer_copy(tx, lane.thread, to)?;
    tx.post(
        "UPDATE threads SET turns = ?3, (summary, skills) = (SELECT summary, skills FROM threads WHERE id = ?1)
         WHERE id = ?2",
        params![lane.thread, to, lane.turns],
    )?;
    let has_summary =
        tx.row("SELECT summary IS NOT NULL FROM threads WHERE id = ?1", params![to], |row| row.get::<_, bool>(0))?;
    Ok(messages > 0 || has_summary == Some(true))
}

/// The lifetime of the session. Each of its threads has a copy of it.
fn lifetime(tx: &mut Tx<'_>, lane: &Lane) -> Done<SessionLifetime> {
    let found = tx.row("SELECT ephemeral FROM threads WHERE id = ?1", params![lane.thread], rows::lifetime)?;
    found.ok_or_else(|| Failure::damaged("a session without its thread"))
}

/// The last turn of a thread (`?1`) of a session (`?2`) that can be hidden.
macro_rules! last_turn {
    () => {
        concat!(
            "SELECT MAX(turn) FROM messages WHERE thread = ?1 AND visibility = 'visible'
               AND position > (SELECT summary_upto FROM threads WHERE id = ?1) AND NOT ",
            notice!(),
            " AND turn NOT IN ",
            turns_at_work!()
        )
    };
}

/// The messages of people in the last turn, for readers.
pub(super) fn last_turn(conn: &Connection, session: &SessionKey) -> Done<Option<LastTurn>> {
    let thread: Option<Uuid> =
        super::tx::row(conn, "SELECT thread FROM sessions WHERE session = ?1", params![session.as_str()], |row| {
            row.get(0)
        })?;
    let Some(thread) = thread else { return Ok(None) };
    let found = super::tx::rows(
        conn,
        concat!(
            "SELECT m.body, r.channel, r.principal FROM messages m JOIN runs r ON r.id = m.run_id
             WHERE m.thread = ?1 AND m.role = 'user' AND m.scope = 'thread' AND m.visibility = 'visible' AND m.turn = (",
            last_turn!(),
            ") ORDER BY m.position"
        ),
        params![thread, session.as_str()],
        |row| {
            let message: Message = rows::from_json(&row.get::<_, String>(0)?)?;
            Ok((message, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
        },
    )?;
    let Some((_, channel, principal)) = found.first() else { return Ok(None) };
    let (channel, principal) = (channel.as_str().into(), principal.clone());
    Ok(Some(LastTurn { channel, principal, messages: found.into_iter().map(|(message, ..)| message).collect() }))
}

/// Hides the turn that a new message replaces.
pub(super) fn replace_turn(tx: &mut Tx<'_>, lane: &mut Lane, session: &SessionKey, at: UnixMillis) -> Done<()> {
    if !undo(tx, &Lane { undone: 0, ..*lane }, session)? {
        return Err(StoreError::NotFound("a turn to replace".into()).into());
    }
    lane.undone += 1;
    append_events(tx, &[edited(session, ThreadEdit::Undo, at)])
}

fn undo(tx: &mut Tx<'_>, lane: &Lane, session: &SessionKey) -> Done<bool> {
    if lane.undone >= UNDO_DEPTH {
        return Ok(false);
    }
    let last = tx.row(last_turn!(), params![lane.thread, session.as_str()], |row| row.get::<_, Option<u32>>(0))?;
    let Some(turn) = last.flatten() else { return Ok(false) };
    show(tx, lane, turn, "visible", "undone")?;
    tx.post("UPDATE threads SET undone = undone + 1 WHERE id = ?1", params![lane.thread])?;
    Ok(true)
}

fn redo(tx: &mut Tx<'_>, lane: &Lane) -> Done<bool> {
    let hidden_last = tx.row(
        "SELECT MIN(turn) FROM messages WHERE thread = ?1 AND visibility = 'undone'",
        params![lane.thread],
        |row| row.get::<_, Option<u32>>(0),
    )?;
    let Some(turn) = hidden_last.flatten() else { return Ok(false) };
    show(tx, lane, turn, "undone", "visible")?;
    tx.post("UPDATE threads SET undone = undone - 1 WHERE id = ?1", params![lane.thread])?;
    Ok(true)
}

fn show(tx: &mut Tx<'_>, lane: &Lane, turn: u32, from: &str, to: &str) -> Done<usize> {
    tx.exec(
        concat!(
            "UPDATE messages SET visibility = ?4 WHERE thread = ?1 AND turn = ?2 AND visibility = ?3 AND NOT ",
            notice!()
        ),
        params![lane.thread, turn, from, to],
    )
}

fn clear(tx: &mut Tx<'_>, lane: &Lane, session: &SessionKey) -> Done<bool> {
    tx.post(
        concat!("UPDATE messages SET visibility = 'cleared' WHERE thread = ?1 AND turn NOT IN ", turns_at_work!()),
        params![lane.thread, session.as_str()],
    )?;
    skills::release(tx, lane.thread)?;
    tx.post(
        "UPDATE threads SET summary = NULL, title = NULL, skills = NULL, undone = 0 WHERE id = ?1",
        params![lane.thread],
    )?;
    Ok(true)
}

fn complete(tx: &mut Tx<'_>, lane: &Lane) -> Done<()> {
    tx.post("UPDATE threads SET state = 'completed' WHERE id = ?1", params![lane.thread])?;
    Ok(())
}

/// Sets the thread to idle after an edit, unless a turn is running.
fn set_idle(tx: &mut Tx<'_>, lane: &Lane, session: &SessionKey, at: UnixMillis) -> Done<()> {
    tx.post(
        concat!(
            "UPDATE threads SET state = CASE WHEN EXISTS ",
            turns_at_work!(),
            " THEN state ELSE 'idle' END, last_active_at = MAX(last_active_at, ?3) WHERE id = ?1"
        ),
        params![lane.thread, session.as_str(), at.0],
    )?;
    Ok(())
}

/// Replaces all but the newest `keep` messages of a snapshot by the summary. It never reaches before an earlier
/// compaction, nor into a running turn.
pub(super) fn compact(tx: &mut Tx<'_>, lease: &Lease, keep: u32, summary: &str, events: &[NewEvent]) -> Done<()> {
    let lane = lane(tx, lease)?;
    let upto = tx.row(
        concat!(
            "SELECT position FROM messages
         WHERE thread = ?1 AND position > (SELECT summary_upto FROM threads WHERE id = ?1) AND NOT ",
            notice!(),
            " AND visibility = 'visible' AND scope = 'thread' AND summarised = 0
           AND (run_id IS NULL OR run_id NOT IN (SELECT id FROM runs WHERE indexed = 0 AND session = ?2 AND ended_at IS NULL))
         ORDER BY position DESC LIMIT 1 OFFSET ?3"
        ),
        params![lane.thread, lease.session.as_str(), keep],
        |row| row.get::<_, i64>(0),
    )?;
    tx.post(
        "UPDATE threads SET summary = ?3, summary_upto = MAX(summary_upto, COALESCE(?2, 0)) WHERE id = ?1",
        params![lane.thread, upto, summary],
    )?;
    append_events(tx, events)
}

/// The same, and removes messages of a running turn from every later load.
pub(super) fn compact_turn(tx: &mut Tx<'_>, lease: &Lease, cut: &TurnCompaction) -> Done<()> {
    let thread = lane(tx, lease)?.thread;
    let run = cut.run.as_uuid();
    let positions = tx.rows(
        "SELECT position FROM messages WHERE thread = ?1 AND run_id = ?2 AND summarised = 0 ORDER BY position",
        params![thread, run],
        |row| row.get::<_, i64>(0),
    )?;
    for position in cut.left.iter().filter_map(|number| positions.get(*number as usize)) {
        tx.post("UPDATE messages SET summarised = 1 WHERE thread = ?1 AND position = ?2", params![thread, position])?;
    }
    compact(tx, lease, cut.keep, &cut.summary, &cut.events)
}
