//! Deletion: whole sessions at once, and old data in pieces.
//!
//! A conversation is deleted in the order session, messages, runs, thread: the remaining rows in between belong to a
//! thread that nobody can open. A run is deleted with all rows that refer to it. The key that recognises a redelivery
//! of its message stays as long as necessary: as a row without texts.

use belay_protocol::archive::KEYS_KEPT_MS;
use belay_protocol::{Lease, Removed, Retention, RunId, SessionKey, StoreError, UnixMillis};
use uuid::Uuid;

use super::connection::{Connection, Engine};
use super::ephemeral::{self, ended_without_thread, old_ephemeral};
use super::index;
use super::lane_guard::lane;
use super::ledger::append_events;
use super::node_mail;
use super::outputs;
use super::principals;
use super::rows;
use super::skills;
use super::spending;
use super::tx::{self, Done, Tx, from_sql_int, to_sql_int};
use super::uploads;
use crate::limits::{deleted, id_before};
use crate::value::{Params, Value, params};

/// A condition on threads `t`, joined with their session `s` if they are its active one: last used before `?1`, not
/// opened since, and without a run that has not ended.
macro_rules! too_old {
    () => {
        "FROM threads t LEFT JOIN sessions s ON s.session = t.session AND s.thread = t.id
         WHERE t.last_active_at < ?1 AND (s.session IS NULL OR s.opened_at < ?1)
           AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.indexed = 0 AND r.session = t.session AND r.ended_at IS NULL
                                                  AND (r.thread = t.id OR s.session IS NOT NULL))"
    };
}

/// The same for the conversations of routine runs that ended before `?2`.
macro_rules! of_old_routine_runs {
    () => {
        "FROM routine_runs f JOIN threads t ON t.session = f.session
         LEFT JOIN sessions s ON s.session = t.session AND s.thread = t.id
         WHERE f.ended_at < ?2 AND t.last_active_at < ?2 AND (s.session IS NULL OR s.opened_at < ?2)
           AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.indexed = 0 AND r.session = t.session AND r.ended_at IS NULL)"
    };
}

/// Replies that are not being delivered.
macro_rules! delivered {
    () => {
        "state NOT IN ('waiting', 'sending')"
    };
}

/// Runs without a thread that ended before `?1` and have more data than their key, or only a key from before `?3`.
macro_rules! loose_runs {
    () => {
        "FROM runs WHERE thread IS NULL AND ended_at IS NOT NULL
           AND ((ended_at < ?1 AND (text <> '' OR key_message IS NULL)) OR (text = '' AND accepted_at < ?3))"
    };
}

/// The number of the first event that stays, by date. Numbers and dates ascend together; if a clock was set back, some
/// events stay longer.
const FIRST_KEPT_EVENT: &str =
    "SELECT COALESCE((SELECT seq FROM events WHERE at >= ?1 ORDER BY seq LIMIT 1), (SELECT MAX(seq) FROM events), 0)";

pub(super) fn delete_session(tx: &mut Tx<'_>, lease: &Lease, at: UnixMillis) -> Done<Removed> {
    lane(tx, lease)?;
    let session = lease.session.as_str();
    let open = "SELECT 1 FROM runs WHERE indexed = 0 AND session = ?1 AND ended_at IS NULL";
    if tx.row(open, params![session], |_| Ok(()))?.is_some() {
        let what = format!("{session} has a message that is still being answered: stop it first");
        return Err(StoreError::TooMuch(what).into());
    }
    // The newest event from now on, so that all others can be deleted.
    append_events(tx, &[deleted(&lease.session, at)])?;
    index::catch_up(tx)?;
    let mut removed = Removed { sessions: 1, ..Removed::default() };
    removed.replies = count(tx.exec(
        concat!(
            "DELETE FROM outbox WHERE run_id IS NULL AND ",
            delivered!(),
            " AND (channel, conversation) IN
                 (SELECT reply_to ->> 'channel', reply_to ->> 'conversation' FROM runs WHERE indexed = 1 AND session = ?1)"
        ),
        params![session],
    )?);
    let threads =
        tx.rows("SELECT id FROM threads WHERE session = ?1", params![session], |row| row.get::<_, Uuid>("id"))?;
    for thread in &threads {
        uploads::release(tx, *thread)?; // a copy is deleted too, so it keeps no upload
    }
    for thread in threads {
        let (old, mut whole) = (Old { thread, session: lease.session.clone() }, i64::MAX);
        delete_part(tx, &old, keys_before(at), &mut whole, &mut removed)?;
    }
    let loose =
        tx.rows("SELECT id FROM runs WHERE indexed = 1 AND session = ?1 AND text <> ''", params![session], |row| {
            rows::id(row, "id")
        })?;
    for run in loose {
        delete_run(tx, run, keys_before(at), &mut removed)?;
    }
    removed.events += facts_of_session(tx, &lease.session)?;
    removed.notes = count(tx.exec("DELETE FROM notes WHERE kind = 'group' AND owner = ?1", params![session])?);
    removed.secrets = count(tx.exec("DELETE FROM secrets WHERE session = ?1", params![session])?);
    node_mail::forget_session(tx, session)?;
    end_session(tx, &lease.session)?;
    Ok(removed)
}

fn keys_before(at: UnixMillis) -> UnixMillis {
    UnixMillis(at.0.saturating_sub(KEYS_KEPT_MS))
}

/// A thread to delete.
pub(super) struct Old {
    pub(super) thread: Uuid,
    pub(super) session: SessionKey,
}

/// The progress of one deletion.
pub(super) struct Progress<'a> {
    pub(super) removed: &'a mut Removed,
    /// The number of rows that may still be deleted now.
    pub(super) left: &'a mut i64,
    /// Keys of messages from before this date are deleted with their runs.
    pub(super) keys_before: UnixMillis,
}

pub(super) fn prune(tx: &mut Tx<'_>, old: &Retention, most: u32) -> Done<Removed> {
    let (mut removed, mut left) = (Removed::default(), i64::from(most));
    index::catch_up(tx)?;
    if let Some(before) = old.ephemeral_before {
        prune_ephemeral(tx, before, old.keys_before, &mut left, &mut removed)?;
    }
    if let Some(before) = old.threads_before {
        principals::prune(tx, before)?;
        for (thread, active) in old_threads(tx, before, left)? {
            if left <= 0 {
                break;
            }
            let sql = concat!("SELECT s.session IS NOT NULL AS active ", too_old!(), " AND t.id = ?2");
            let Claim::Old { active } = claim(tx, &thread, active, sql, params![before.0, thread.thread])? else {
                continue;
            };
            if active {
                end_active(tx, &thread.session, &mut removed)?;
            }
            delete_part(tx, &thread, old.keys_before, &mut left, &mut removed)?;
        }
        let replies = tx.exec(
            concat!(
                "DELETE FROM outbox WHERE seq IN
                     (SELECT seq FROM outbox WHERE run_id IS NULL AND id < ?1 AND ",
                delivered!(),
                " LIMIT ?2)"
            ),
            params![id_before(before), left.max(0)],
        )?;
        removed.replies += count(replies);
    }
    spending::merge(tx, old.keys_before, left)?;
    node_mail::forget_answered(tx, old.keys_before)?;
    node_mail::forget_secrets(tx, old.keys_before)?;
    delete_loose_runs(tx, old, &mut left, &mut removed)?;
    if let Some(before) = old.ended_routine_runs_before {
        for thread in of_routine_runs(tx, before, left, &mut removed)? {
            if left > 0 {
                delete_part(tx, &thread, old.keys_before, &mut left, &mut removed)?;
            }
        }
    }
    removed.jobs += delete_work(tx, OLD_JOBS, old.threads_before, old, &mut left, &mut removed.events)?;
    removed.routine_runs +=
        delete_work(tx, OLD_ROUTINE_RUNS, old.routine_runs_before(), old, &mut left, &mut removed.events)?;
    if let Some(before) = old.events_before {
        let events = tx.exec(
            &format!(
                "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE seq < ({FIRST_KEPT_EVENT})
                                                  ORDER BY seq LIMIT ?2)"
            ),
            params![before.0, left.max(0)],
        )?;
        removed.events += count(events);
    }
    Ok(removed)
}

fn prune_ephemeral(
    tx: &mut Tx<'_>,
    before: UnixMillis,
    keys_before: UnixMillis,
    left: &mut i64,
    removed: &mut Removed,
) -> Done<()> {
    while *left > 0 {
        let mut progress = Progress { removed: &mut *removed, left: &mut *left, keys_before };
        let Some(thread) = ephemeral::oldest(tx, before, &mut progress)? else { break };
        delete_part(tx, &thread, keys_before, left, removed)?;
    }
    Ok(())
}

/// A condition on jobs or routine runs: over before `?1`, and, if their row recognises a repeated request, from before
/// `?2`.
macro_rules! old_work {
    (jobs) => {
        "FROM jobs WHERE ended_at < ?1 AND created_at < ?2"
    };
    (routine_runs) => {
        "FROM routine_runs WHERE ended_at < ?1 AND (scheduled_at IS NOT NULL OR claimed_at < ?2)"
    };
}

/// Old jobs and routine runs whose session is deleted. A session is deleted by its own age, before them.
const OLD_JOBS: (&str, &str) = (
    "DELETE FROM jobs WHERE seq = ?1",
    concat!(
        "SELECT seq, session ",
        old_work!(jobs),
        " AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.session = jobs.session) ORDER BY ended_at LIMIT ?3"
    ),
);
const OLD_ROUTINE_RUNS: (&str, &str) = (
    "DELETE FROM routine_runs WHERE seq = ?1",
    concat!(
        "SELECT seq, session ",
        old_work!(routine_runs),
        " AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.session = routine_runs.session) ORDER BY ended_at LIMIT ?3"
    ),
);

/// Deletes jobs or routine runs that ended before the date, with their events, limited to `left` rows. Returns their
/// number.
fn delete_work(
    tx: &mut Tx<'_>,
    (delete, select): (&str, &str),
    before: Option<UnixMillis>,
    old: &Retention,
    left: &mut i64,
    events: &mut u64,
) -> Done<u64> {
    let Some(before) = before else { return Ok(0) };
    let gone = tx.rows(select, params![before.0, old.keys_before.0, (*left).max(0)], |row| {
        Ok((row.get::<_, i64>("seq")?, SessionKey::from(row.get::<_, String>("session")?)))
    })?;
    for (seq, session) in &gone {
        tx.post(delete, params![seq])?;
        let facts = facts_of_session(tx, session)?;
        *events += facts;
        *left -= 1 + to_sql_int(facts);
    }
    Ok(gone.len() as u64)
}

/// The threads to delete, at most `most`, in the order of their ids, which is about that of their creation: an index by
/// date would cost every message a page. The flag: the thread is the active one of its session.
fn old_threads(tx: &mut Tx<'_>, before: UnixMillis, most: i64) -> Done<Vec<(Old, bool)>> {
    tx.rows(
        concat!("SELECT t.id, t.session, s.session IS NOT NULL AS active ", too_old!(), " LIMIT ?2"),
        params![before.0, most.max(0)],
        |row| {
            let old = Old { thread: row.get("id")?, session: row.get::<_, String>("session")?.into() };
            Ok((old, row.get::<_, bool>("active")?))
        },
    )
}

/// The conversations of routine runs that ended before the date, at most `most`. Their sessions are deleted with them.
fn of_routine_runs(tx: &mut Tx<'_>, before: UnixMillis, most: i64, removed: &mut Removed) -> Done<Vec<Old>> {
    let found = tx.rows(
        concat!(
            "SELECT t.id, t.session, s.session IS NOT NULL AS active ",
            of_old_routine_runs!(),
            " ORDER BY f.ended_at LIMIT ?1"
        ),
        params![most.max(0), before.0],
        |row| {
            let old = Old { thread: row.get("id")?, session: row.get::<_, String>("session")?.into() };
            Ok((old, row.get::<_, bool>("active")?))
        },
    )?;
    let mut claimed = Vec::with_capacity(found.len());
    for (old, active) in found {
        let sql = concat!("SELECT s.session IS NOT NULL AS active ", of_old_routine_runs!(), " AND t.id = ?1 LIMIT 1");
        if let Claim::Old { active } = claim(tx, &old, active, sql, params![old.thread, before.0])? {
            if active {
                end_active(tx, &old.session, removed)?;
            }
            claimed.push(old);
        }
    }
    Ok(claimed)
}

/// Whether a thread that a query has found may be deleted.
pub(super) enum Claim {
    /// It is still old. No other writer can use its session until the commit. `active`: it is the session's active thread.
    Old { active: bool },
    /// It was used since the query.
    Used,
    /// Another writer uses its session now.
    Busy,
}

/// Claims a found thread for its deletion: locks its session against other writers, and then looks once more whether the
/// thread is old. The lock comes first, because a statement that waits keeps the view from before its wait. Waits for
/// nobody: a session that another writer has locked is in use. On SQLite the answer of the query (`active`) is still right.
///
/// `sql`: the condition of the query for this thread alone, with the column `active`.
pub(super) fn claim(tx: &mut Tx<'_>, old: &Old, active: bool, sql: &str, params: impl Params) -> Done<Claim> {
    if tx.engine() == Engine::Sqlite {
        return Ok(Claim::Old { active });
    }
    let session = old.session.as_str();
    let lock = "SELECT session FROM sessions WHERE session = ?1 FOR UPDATE SKIP LOCKED";
    if tx.row(lock, params![session], |_| Ok(()))?.is_none()
        && tx.row("SELECT session FROM sessions WHERE session = ?1", params![session], |_| Ok(()))?.is_some()
    {
        return Ok(Claim::Busy);
    }
    let active = tx.row(sql, params, |row| row.get::<_, bool>("active"))?;
    Ok(active.map_or(Claim::Used, |active| Claim::Old { active }))
}

/// Deletes a session whose active conversation is deleted.
pub(super) fn end_active(tx: &mut Tx<'_>, session: &SessionKey, removed: &mut Removed) -> Done<()> {
    removed.sessions += 1;
    removed.events += facts_of_session(tx, session)?;
    end_session(tx, session)
}

fn end_session(tx: &mut Tx<'_>, session: &SessionKey) -> Done<()> {
    tx.post("DELETE FROM grants WHERE session = ?1", params![session.as_str()])?;
    tx.post("DELETE FROM sessions WHERE session = ?1", params![session.as_str()])?;
    Ok(())
}

/// Deletes the events of a session that belong to no run.
fn facts_of_session(tx: &mut Tx<'_>, session: &SessionKey) -> Done<u64> {
    Ok(count(tx.exec(
        "DELETE FROM events WHERE session = ?1 AND run_id IS NULL AND seq < (SELECT MAX(seq) FROM events)",
        params![session.as_str()],
    )?))
}

/// Deletes a thread, limited to `left` rows.
fn delete_part(tx: &mut Tx<'_>, old: &Old, keys_before: UnixMillis, left: &mut i64, removed: &mut Removed) -> Done<()> {
    let Old { thread, session } = old;
    let upto = tx.row(
        "SELECT MAX(position), COUNT(*) FROM (SELECT position FROM messages WHERE thread = ?1 ORDER BY position LIMIT ?2)",
        params![thread, *left],
        |row| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, i64>(1)?)),
    )?;
    if let Some((Some(upto), rows)) = upto {
        index::forget(tx, *thread, upto)?;
        removed.messages +=
            count(tx.exec("DELETE FROM messages WHERE thread = ?1 AND position <= ?2", params![thread, upto])?);
        *left -= rows;
    }
    let runs = tx.rows(
        "SELECT id FROM runs WHERE indexed = 1 AND session = ?1 AND thread = ?2 LIMIT ?3",
        params![session.as_str(), thread, (*left).max(0)],
        |row| rows::id(row, "id"),
    )?;
    for run in runs {
        *left -= delete_run(tx, run, keys_before, removed)?;
    }
    if *left > 0 {
        uploads::release(tx, *thread)?;
        skills::release(tx, *thread)?;
        tx.post("DELETE FROM thread_index WHERE thread = ?1", params![thread])?;
        removed.threads += count(tx.exec("DELETE FROM threads WHERE id = ?1", params![thread])?);
        *left -= 1;
    }
    Ok(())
}

fn delete_loose_runs(tx: &mut Tx<'_>, old: &Retention, left: &mut i64, removed: &mut Removed) -> Done<()> {
    let loose = tx.rows(
        concat!("SELECT id ", loose_runs!(), " LIMIT ?2"),
        params![old.threads_before.map_or(i64::MIN, |before| before.0), (*left).max(0), old.keys_before.0],
        |row| rows::id(row, "id"),
    )?;
    for run in loose {
        *left -= delete_run(tx, run, old.keys_before, removed)?;
    }
    Ok(())
}

/// Deletes a run with all rows that refer to it. Returns the number of rows. Its key stays until it may be deleted.
pub(super) fn delete_run(tx: &mut Tx<'_>, run: RunId, keys_before: UnixMillis, removed: &mut Removed) -> Done<i64> {
    let id = run.as_uuid();
    let events = tx.exec(
        "DELETE FROM events WHERE indexed = 1 AND run_id = ?1 AND seq < (SELECT MAX(seq) FROM events)",
        params![id],
    )?;
    let approvals = tx.exec("DELETE FROM approvals WHERE run_id = ?1", params![id])?;
    let replies = tx.exec(concat!("DELETE FROM outbox WHERE run_id = ?1 AND ", delivered!()), params![id])?;
    outputs::forget_of_run(tx, run)?;
    uploads::forget_of_run(tx, id)?;
    uploads::release(tx, id)?;
    let stripped = tx.exec(
        "UPDATE runs SET thread = NULL, turn = NULL, text = '', reply = NULL, evidence = NULL, reply_to = NULL,
                         options = NULL, provenance = NULL, message_ref = NULL, edited = NULL, files = NULL
         WHERE id = ?1 AND key_message IS NOT NULL AND accepted_at >= ?2",
        params![id, keys_before.0],
    )?;
    if stripped == 0 {
        tx.post("DELETE FROM runs WHERE id = ?1", params![id])?;
    }
    removed.runs += 1;
    removed.events += count(events);
    removed.replies += count(replies);
    removed.run_ids.push(run);
    Ok(1 + i64::try_from(events + approvals + replies).unwrap_or(i64::MAX))
}

pub(super) fn count(rows: usize) -> u64 {
    rows as u64
}

/// The counts that [`prune`] would delete in all. Runs of a thread count with all their events.
pub(super) fn prunable(conn: &Connection, old: &Retention) -> Done<Removed> {
    let ms = |date: Option<UnixMillis>| date.map_or(i64::MIN, |date| date.0);
    let ephemeral = ms(old.ephemeral_before);
    let dates = [ms(old.threads_before), ms(old.ended_routine_runs_before), old.keys_before.0, ephemeral];
    // Every query refers to the last of the dates.
    let one = |sql: &str| -> Done<u64> {
        let values = dates.map(Value::from);
        Ok(tx::row(conn, sql, values, |row| Ok(from_sql_int(row.get(0)?)))?.unwrap_or(0))
    };
    let gone = concat!(
        "(SELECT t.id, s.session AS ended ",
        too_old!(),
        " UNION SELECT t.id, s.session AS ended ",
        of_old_routine_runs!(),
        " UNION SELECT t.id, CASE WHEN s.thread = t.id THEN s.session END AS ended ",
        old_ephemeral!("?4"),
        ")"
    );
    let ended_ephemeral = concat!("(SELECT t.session ", old_ephemeral!("?4"), " AND s.thread = t.id)");
    let threads = format!("(SELECT id FROM {gone})");
    let runs = format!(
        "(SELECT id FROM runs WHERE thread IN {threads} UNION SELECT id {} UNION SELECT id FROM runs WHERE {} AND session IN {})",
        loose_runs!(),
        ended_without_thread!(),
        ended_ephemeral
    );
    let of_runs = |what: &str| one(&format!("SELECT COUNT(*) {what} IN {runs}"));
    let by_date = match old.events_before {
        Some(before) => {
            let first = tx::row(conn, FIRST_KEPT_EVENT, params![before.0], |row| row.get::<_, i64>(0))?;
            let sql = "SELECT COUNT(*) FROM events WHERE seq < ?1";
            tx::row(conn, sql, params![first], |row| Ok(from_sql_int(row.get(0)?)))?.unwrap_or(0)
        }
        None => 0,
    };
    // Jobs and routine runs: each stays as long as its session.
    let over = |what: &str, before: Option<UnixMillis>| {
        let sql = format!(
            "SELECT COUNT(*) {what} AND (session NOT IN (SELECT session FROM sessions)
                                         OR session IN (SELECT ended FROM {} WHERE ended IS NOT NULL))",
            gone.replace("?4", "?5").replace("?2", "?4").replace("?1", "?3")
        );
        let values = [ms(before), old.keys_before.0, dates[0], dates[1], ephemeral].map(Value::from);
        tx::row(conn, &sql, values, |row| Ok(from_sql_int(row.get(0)?))).map(Option::unwrap_or_default)
    };
    Ok(Removed {
        sessions: one(&format!("SELECT COUNT(ended) FROM {gone}"))?,
        threads: one(&format!("SELECT COUNT(*) FROM {gone}"))?,
        messages: one(&format!("SELECT COUNT(*) FROM messages WHERE thread IN {threads}"))?,
        runs: of_runs("FROM runs WHERE id")?,
        events: of_runs("FROM events WHERE indexed = 1 AND run_id")?.max(by_date),
        replies: of_runs(concat!("FROM outbox WHERE ", delivered!(), " AND run_id"))?,
        notes: one(&format!("SELECT COUNT(*) FROM notes WHERE kind = 'group' AND owner IN {ended_ephemeral}"))?,
        secrets: one(&format!("SELECT COUNT(*) FROM secrets WHERE session IN {ended_ephemeral}"))?,
        jobs: over(old_work!(jobs), old.threads_before)?,
        routine_runs: over(old_work!(routine_runs), old.routine_runs_before())?,
        ..Removed::default()
    })
}
