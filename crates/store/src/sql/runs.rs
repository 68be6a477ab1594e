//! The start, the progress and the end of runs.
//!
//! A function that writes for the owner of a lane begins with the check of [`lane_guard`], which refuses other callers. A
//! function that is refused after it has written is rolled back as a whole by the writer.

use belay_protocol::store::joined_end;
use belay_protocol::{
    Checkpoint, CollectedStart, EventKind, FinishedRun, JoinedRun, Lease, Message, NewEvent, RunId, RunStatus,
    ThreadState, UnixMillis,
};
use uuid::Uuid;

use super::acceptance::provenance_json;
use super::approvals;
use super::connection::{Engine, Row};
use super::lane_guard::{self, Lane, is_held, lane};
use super::ledger::append_events;
use super::outbox;
use super::rows;
use super::sent_files;
use super::threads::{Place, append_messages, begin_turn, set_thread};
use super::tx::{Done, Tx, not_found, to_sql_int};
use crate::value::{Param, params};

pub(super) fn start_run(tx: &mut Tx<'_>, lease: &Lease, run: RunId, at: UnixMillis) -> Done<()> {
    let lane = lane(tx, lease)?;
    let started = tx.row(
        "UPDATE OR FAIL runs SET status = 'running', attempt = attempt + CASE WHEN status <> 'paused' THEN 1 ELSE 0 END, started_at = COALESCE(started_at, ?3),
                         thread = COALESCE(thread, ?4), turn = COALESCE(turn, ?5)
         WHERE id = ?1 AND session = ?2 AND ended_at IS NULL
         RETURNING attempt, thread, turn, text, history, provenance",
        params![run.as_uuid(), lease.session.as_str(), at.0, lane.thread, lane.turns + 1],
        |row| {
            let history: Vec<Message> = rows::readable(row, run, "history")?.unwrap_or_default();
            let thread: Uuid = row.get("thread")?;
            // The turn of an earlier attempt has a lower number or is in an earlier thread.
            let first = thread == lane.thread && row.get::<_, u32>("turn")? > lane.turns;
            let provenance = rows::readable(row, run, "provenance")?;
            let message = Message::sent(row.get::<_, String>("text")?, provenance);
            Ok((row.get::<_, u32>("attempt")?, first, thread, message, history))
        },
    )?;
    let (attempt, first, thread, message, history) = started.ok_or_else(|| not_found("unfinished run", run))?;
    if first {
        begin_turn(tx, &lane, run, &history, &message, at)?;
    } else {
        set_thread(tx, thread, Some(ThreadState::Processing), at)?;
    }
    let kind = EventKind::RunStarted { attempt };
    append_events(tx, &[NewEvent { at, session: Some(lease.session.clone()), run_id: Some(run), kind }])
}

pub(super) fn suspend_run(tx: &mut Tx<'_>, lease: &Lease, run: RunId) -> Done<()> {
    lane(tx, lease)?;
    tx.exec(
        "UPDATE runs SET attempt = attempt - 1
         WHERE id = ?1 AND session = ?2 AND ended_at IS NULL AND status = 'running' AND attempt > 1",
        params![run.as_uuid(), lease.session.as_str()],
    )?;
    Ok(())
}

pub(super) fn start_together(tx: &mut Tx<'_>, lease: &Lease, together: &CollectedStart) -> Done<()> {
    lane(tx, lease)?;
    let sql = "UPDATE runs SET text = ?3, provenance = ?4
               WHERE id = ?1 AND session = ?2 AND ended_at IS NULL AND thread IS NULL";
    let CollectedStart { run, text, provenance, joined, at } = together;
    let provenance = provenance_json(provenance.as_deref())?;
    if tx.exec(sql, params![run.as_uuid(), lease.session.as_str(), text, provenance])? == 0 {
        return Err(not_found("queued run", *run));
    }
    start_run(tx, lease, *run, *at)?;
    join(tx, lease, *run, joined)
}

/// Ends the runs whose messages have become part of this run.
fn join(tx: &mut Tx<'_>, lease: &Lease, into: RunId, joined: &[JoinedRun]) -> Done<()> {
    let mut events = Vec::with_capacity(joined.len());
    for JoinedRun { run, how, at } in joined {
        let end = joined_end(into, how);
        let ended = tx.exec(
            "UPDATE runs SET status = ?3, reason = ?4, evidence = ?5, ended_at = ?6, state = NULL, history = NULL
             WHERE id = ?1 AND session = ?2 AND ended_at IS NULL",
            params![
                run.as_uuid(),
                lease.session.as_str(),
                end.reason.status().word(),
                end.reason.word(),
                rows::to_json(&end.evidence)?,
                at.0
            ],
        )?;
        if ended == 0 {
            must_exist(tx, lease, *run)?;
            continue;
        }
        let kind = EventKind::RunEnded { status: end.reason.status(), reason: end.reason, evidence: end.evidence };
        events.push(NewEvent { at: *at, session: Some(lease.session.clone()), run_id: Some(*run), kind });
    }
    append_events(tx, &events)
}

pub(super) fn checkpoint(tx: &mut Tx<'_>, lease: &Lease, checkpoint: &Checkpoint) -> Done<()> {
    progress(tx, lease, checkpoint, RunStatus::Running).map(|_| ())
}

/// An update of a run for the owner of its lane: the text for SQLite, and that for PostgreSQL, which has the condition
/// [`is_held`] too.
macro_rules! held {
    ($update:expr, $held:expr, $returning:expr) => {
        (
            concat!($update, $returning),
            concat!($update, " AND EXISTS (SELECT 1 FROM sessions s WHERE ", $held, ")", $returning),
        )
    };
}

/// The row of such an update. The last two parameters, the owner and the epoch, are those of the condition.
fn held_row<T>(
    tx: &mut Tx<'_>,
    (sqlite, postgres): (&str, &str),
    params: &[Param<'_>],
    read: impl Fn(&Row<'_>) -> Done<T>,
) -> Done<Option<T>> {
    match tx.engine() {
        Engine::Sqlite => tx.row(sqlite, params.split_last_chunk::<2>().map_or(params, |(own, _)| own), read),
        Engine::Postgres => tx.row(postgres, params, read),
    }
}

/// Writes the progress of a running run and its new status. Returns its thread.
pub(super) fn progress(tx: &mut Tx<'_>, lease: &Lease, checkpoint: &Checkpoint, status: RunStatus) -> Done<Uuid> {
    let guard = lane_guard::ask(tx, lease)?;
    let usage = checkpoint.usage;
    let running = held_row(
        tx,
        held!(
            "UPDATE OR FAIL runs SET input_tokens = ?3, output_tokens = ?4, model_calls = ?5, tool_calls = ?6, cost_micro_usd = ?7,
                             state = COALESCE(?8, state), status = ?9, estimated_calls = ?10
             WHERE id = ?1 AND session = ?2 AND status = 'running'",
            is_held!("?2", "?11", "?12"),
            " RETURNING thread, turn, started_at"
        ),
        &params![
            checkpoint.run.as_uuid(),
            lease.session.as_str(),
            to_sql_int(usage.input),
            to_sql_int(usage.output),
            usage.model_calls,
            usage.tool_calls,
            to_sql_int(checkpoint.cost_micro_usd),
            checkpoint.state.as_ref().map(rows::to_json).transpose()?,
            status.word(),
            usage.estimated_calls,
            lease.owner.as_uuid(),
            to_sql_int(lease.epoch)
        ],
        |row| Ok((row.get::<_, Uuid>("thread")?, row.get("turn")?, rows::date(row, "started_at")?)),
    )?;
    guard.answer(tx, lease)?;
    let (thread, turn, started_at) = running.ok_or_else(|| not_found("running run", checkpoint.run))?;
    approvals::use_up(tx, checkpoint.run, &checkpoint.used)?;
    let at = checkpoint.events.iter().map(|event| event.at).max().unwrap_or(started_at);
    let place = Place { thread, turn, run: Some(checkpoint.run), at };
    append_messages(tx, &place, &checkpoint.messages)?;
    append_events(tx, &checkpoint.events)?;
    sent_files::keep(tx, checkpoint.run, &checkpoint.events)?;
    join(tx, lease, checkpoint.run, &checkpoint.joined)?;
    checkpoint.outbound.iter().try_for_each(|message| outbox::insert(tx, message))?;
    Ok(thread)
}

pub(super) fn finish_runs(tx: &mut Tx<'_>, lease: &Lease, finished: &[FinishedRun]) -> Done<()> {
    let Some((first, others)) = finished.split_first() else { return lane(tx, lease).map(drop) };
    let guard = lane_guard::ask(tx, lease)?;
    let ended = end_run(tx, lease, first)?;
    let lane = guard.answer(tx, lease)?;
    finish_run(tx, lease, &lane, first, ended)?;
    for run in others {
        let ended = end_run(tx, lease, run)?;
        finish_run(tx, lease, &lane, run, ended)?;
    }
    Ok(())
}

/// A run that was ended now.
struct Ended {
    /// The thread and the turn, if it has started.
    place: (Option<Uuid>, Option<u32>),
    /// Whether it has asked a question that is open.
    asking: bool,
}

/// Ends a run. `None`: there is none, or it has ended before.
fn end_run(tx: &mut Tx<'_>, lease: &Lease, finished: &FinishedRun) -> Done<Option<Ended>> {
    let status = finished.end.reason.status();
    let usage = finished.usage;
    held_row(
        tx,
        held!(
            "UPDATE OR FAIL runs SET status = ?3, reason = ?4, evidence = ?5, reply = ?6, input_tokens = ?7, output_tokens = ?8,
                             model_calls = ?9, tool_calls = ?10, cost_micro_usd = ?11, ended_at = ?12, estimated_calls = ?13,
                             state = NULL, history = NULL, model = ?14
             WHERE id = ?1 AND session = ?2 AND ended_at IS NULL",
            is_held!("?2", "?15", "?16"),
            concat!(
                " RETURNING thread, turn, EXISTS (SELECT 1 FROM approvals WHERE run_id = runs.id AND ",
                approvals::open!(),
                ") AS asking"
            )
        ),
        &params![
            finished.run.as_uuid(),
            lease.session.as_str(),
            status.word(),
            finished.end.reason.word(),
            (!finished.end.evidence.is_empty()).then(|| rows::to_json(&finished.end.evidence)).transpose()?,
            finished.reply,
            to_sql_int(usage.input),
            to_sql_int(usage.output),
            usage.model_calls,
            usage.tool_calls,
            to_sql_int(finished.cost_micro_usd),
            finished.at.0,
            usage.estimated_calls,
            finished.model.as_deref(),
            lease.owner.as_uuid(),
            to_sql_int(lease.epoch)
        ],
        |row| {
            let place = (row.get("thread")?, row.get("turn")?);
            Ok(Ended { place, asking: row.get("asking")? })
        },
    )
}

/// Writes what belongs to the end of a run.
fn finish_run(tx: &mut Tx<'_>, lease: &Lease, lane: &Lane, finished: &FinishedRun, ended: Option<Ended>) -> Done<()> {
    let Some(Ended { place, asking }) = ended else { return must_exist(tx, lease, finished.run) };
    let status = finished.end.reason.status();
    if let (Some(thread), Some(turn)) = place {
        let place = Place { thread, turn, run: Some(finished.run), at: finished.at };
        append_messages(tx, &place, &finished.messages)?;
    }
    set_thread(tx, place.0.unwrap_or(lane.thread), finished.thread_state, finished.at)?;
    finished
        .said
        .iter()
        .chain(&finished.outbound)
        .chain(&finished.callback)
        .try_for_each(|message| outbox::insert(tx, message))?;
    let kind = EventKind::RunEnded { status, reason: finished.end.reason, evidence: finished.end.evidence.clone() };
    let ended = NewEvent { at: finished.at, session: Some(lease.session.clone()), run_id: Some(finished.run), kind };
    sent_files::keep(tx, finished.run, &finished.events)?;
    let mut events = finished.events.clone();
    if asking {
        events.extend(approvals::withdraw(tx, &lease.session, finished.run, finished.at)?);
    }
    events.push(ended);
    append_events(tx, &events)
}

/// Checks that a run that was not ended now has ended before: otherwise the lane does not know it.
fn must_exist(tx: &mut Tx<'_>, lease: &Lease, run: RunId) -> Done<()> {
    let found = tx.row(
        "SELECT 1 FROM runs WHERE id = ?1 AND session = ?2",
        params![run.as_uuid(), lease.session.as_str()],
        |_| Ok(()),
    )?;
    found.ok_or_else(|| not_found("run", run))
}
