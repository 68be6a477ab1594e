//! Routines. The rules are in [`crate::routines`].
//!
//! Several daemons may write. A change of a routine locks its row before it reads the row. A new routine is checked
//! against all others under `tx.exclusive`.

use belay_protocol::routine::MAX_ROUTINES;
use belay_protocol::{
    Deferral, NewRoutine, PutBy, PutRule, RoutineId, RoutineNumbers, RoutineOrigin, RoutinePut, RoutineRecord,
    UnixMillis,
};

use super::connection::{Connection, Engine, Row};
use super::damaged::{self, Sifted, sift};
use super::ledger::append_events;
use super::rows;
use super::tx::{self, Done, Tx, from_sql_int, to_sql_int};
use crate::jobs::revoked;
use crate::routines::{
    made, most_of_owner, over, path_of, path_taken, put_again, switched, too_many, too_many_each, unreadable,
};
use crate::value::{named_params, params};

/// The columns that [`record`] reads.
const COLUMNS: &str = "id, name, spec, channel, principal, authority, relayed, created_in, reply_to, origin, enabled, \
     disabled_detail, revision, next_at, not_before, claimed_to, last_run_at, triggered_at, run_count, failures, created_at, \
     changed_at";

/// The routines whose time has come by `?1` and that are not deferred. A disabled routine has no next time.
pub(super) fn due_sql() -> String {
    format!("SELECT {COLUMNS} FROM routines WHERE due_at <= ?1 ORDER BY due_at, name LIMIT ?2")
}

pub(super) const NEXT_DUE: &str = "SELECT MIN(due_at) AS due_at FROM routines WHERE due_at IS NOT NULL";

/// A stored routine.
pub(super) struct Kept {
    pub(super) record: RoutineRecord,
    /// The time until which it is deferred.
    pub(super) not_before: Option<UnixMillis>,
}

pub(super) fn put(tx: &mut Tx<'_>, new: &NewRoutine, rule: PutRule) -> Done<RoutinePut> {
    // The name, the path and the limits concern all routines.
    tx.exclusive("routines")?;
    let name = &new.spec.name;
    let old = match find(tx, name)? {
        Found::There(old) => Some(*old),
        Found::Damaged if matches!(rule.by, PutBy::Owner { .. }) => return Ok(unreadable(name)),
        Found::Damaged | Found::Nothing => None,
    };
    let new = match &old {
        Some(old) => match over(&old.record, new.clone(), rule) {
            Ok(new) => new,
            Err(refused) => return Ok(refused),
        },
        None => new.clone(),
    };
    if old.is_none()
        && let Some(refused) = no_room(tx, &new, rule)?
    {
        return Ok(refused);
    }
    if let Some(path) = path_of(&new.spec.trigger) {
        let sql = "SELECT name FROM routines WHERE path = ?1 AND name <> ?2";
        if let Some(by) = tx.row(sql, params![path, name], |row| row.get::<_, String>(0))? {
            return Ok(path_taken(path, &by));
        }
    }
    let kept = match old {
        Some(Kept { record, not_before }) => {
            let was = (record.routine_id, record.next_at);
            let before = record.clone();
            let record = put_again(record, new);
            if record == before {
                return Ok(RoutinePut::Done(Box::new(record))); // so that each start of each node writes nothing
            }
            Kept { not_before: not_before.filter(|_| (record.routine_id, record.next_at) == was), record }
        }
        None => Kept { record: made(new), not_before: None },
    };
    write(tx, &kept)?;
    note_change(tx)?;
    Ok(RoutinePut::Done(Box::new(kept.record)))
}

/// The refusal if the limit of routines is reached.
fn no_room(tx: &mut Tx<'_>, new: &NewRoutine, rule: PutRule) -> Done<Option<RoutinePut>> {
    let there = tx.row("SELECT COUNT(*) FROM routines", [], |row| Ok(from_sql_int(row.get(0)?)))?;
    if there.unwrap_or(0) >= u64::from(MAX_ROUTINES) {
        return Ok(Some(too_many()));
    }
    let Some(most) = most_of_owner(rule) else { return Ok(None) };
    let own = tx.row(
        "SELECT COUNT(*) FROM routines WHERE channel = ?1 AND principal = ?2 AND origin = ?3",
        params![new.channel.as_str(), new.creator.principal, rows::to_json(&RoutineOrigin::Made)?],
        |row| Ok(from_sql_int(row.get(0)?)),
    )?;
    Ok((own.unwrap_or(0) >= u64::from(most)).then(|| too_many_each(most)))
}

/// Changes the number by which daemons notice changed triggers.
pub(super) fn note_change(tx: &mut Tx<'_>) -> Done<()> {
    tx.post("UPDATE routine_changes SET changes = changes + 1", [])?;
    Ok(())
}

pub(super) fn changes(conn: &Connection) -> Done<u64> {
    Ok(tx::row(conn, "SELECT changes FROM routine_changes", [], |row| rows::count(row, "changes"))?.unwrap_or(0))
}

fn write(tx: &mut Tx<'_>, Kept { record, not_before }: &Kept) -> Done<()> {
    let date = |date: Option<UnixMillis>| date.map(|date| date.0);
    tx.post(
        // The path is free, so this replaces no row but its own.
        "INSERT INTO routines (name, id, spec, path, channel, principal, authority, relayed, created_in, reply_to,
                                          origin, enabled, disabled_detail, revision, next_at, not_before, claimed_to, last_run_at,
                                          triggered_at, run_count, failures, created_at, changed_at)
         VALUES (:name, :id, :spec, :path, :channel, :principal, :authority, :relayed, :created_in, :reply_to, :origin, :enabled,
                 :disabled_detail, :revision, :next_at, :not_before, :claimed_to, :last_run_at, :triggered_at, :run_count,
                 :failures, :created_at, :changed_at)
         ON CONFLICT (name) DO UPDATE SET id = excluded.id, spec = excluded.spec, path = excluded.path,
             channel = excluded.channel, principal = excluded.principal, authority = excluded.authority,
             relayed = excluded.relayed, created_in = excluded.created_in, reply_to = excluded.reply_to,
             origin = excluded.origin, enabled = excluded.enabled, disabled_detail = excluded.disabled_detail,
             revision = excluded.revision, next_at = excluded.next_at, not_before = excluded.not_before,
             claimed_to = excluded.claimed_to, last_run_at = excluded.last_run_at, triggered_at = excluded.triggered_at,
             run_count = excluded.run_count, failures = excluded.failures, created_at = excluded.created_at,
             changed_at = excluded.changed_at",
        named_params! {
            ":name": record.spec.name,
            ":id": record.routine_id.as_uuid(),
            ":spec": rows::to_json(&record.spec)?,
            ":path": path_of(&record.spec.trigger),
            ":channel": record.channel.as_str(),
            ":principal": record.creator.principal,
            ":authority": rows::authority_word(record.creator.authority),
            ":relayed": record.creator.relayed,
            ":created_in": record.made_in.as_str(),
            ":reply_to": record.reply_to.as_ref().map(rows::to_json).transpose()?,
            ":origin": rows::to_json(&record.origin)?,
            ":enabled": record.enabled,
            ":disabled_detail": record.disabled_detail,
            ":revision": record.revision,
            ":next_at": date(record.next_at),
            ":not_before": date(*not_before),
            ":claimed_to": date(record.claimed_to),
            ":last_run_at": date(record.fired_at),
            ":triggered_at": date(record.set_off_at),
            ":run_count": to_sql_int(record.routine_runs),
            ":failures": record.failures,
            ":created_at": record.created_at.0,
            ":changed_at": record.changed_at.0,
        },
    )?;
    Ok(())
}

/// Writes the fields that routine runs and switches change: all except the specification and the owner. A routine with
/// a new next time is not deferred.
pub(super) fn keep(tx: &mut Tx<'_>, Kept { record, not_before }: &Kept) -> Done<()> {
    let date = |date: Option<UnixMillis>| date.map(|date| date.0);
    tx.post(
        "UPDATE routines SET enabled = ?2, disabled_detail = ?3, next_at = ?4, claimed_to = ?5, last_run_at = ?6, triggered_at = ?7,
                             run_count = ?8, failures = ?9, changed_at = ?10,
                             not_before = CASE WHEN next_at IS ?4 THEN ?11 END
         WHERE name = ?1",
        params![
            record.spec.name,
            record.enabled,
            record.disabled_detail,
            date(record.next_at),
            date(record.claimed_to),
            date(record.fired_at),
            date(record.set_off_at),
            to_sql_int(record.routine_runs),
            record.failures,
            record.changed_at.0,
            date(*not_before)
        ],
    )?;
    Ok(())
}

fn record(row: &Row<'_>) -> Done<RoutineRecord> {
    let json = |column| -> Done<String> { row.get(column) };
    let reply_to: Option<String> = row.get("reply_to")?;
    Ok(RoutineRecord {
        routine_id: rows::id(row, "id")?,
        spec: rows::from_json(&json("spec")?)?,
        creator: rows::asker(row)?,
        channel: row.get::<_, String>("channel")?.into(),
        made_in: row.get::<_, String>("created_in")?.into(),
        reply_to: reply_to.map(|text| rows::from_json(&text)).transpose()?,
        origin: rows::from_json(&json("origin")?)?,
        enabled: row.get("enabled")?,
        disabled_detail: row.get("disabled_detail")?,
        revision: row.get("revision")?,
        next_at: rows::optional_date(row, "next_at")?,
        claimed_to: rows::optional_date(row, "claimed_to")?,
        fired_at: rows::optional_date(row, "last_run_at")?,
        set_off_at: rows::optional_date(row, "triggered_at")?,
        routine_runs: rows::count(row, "run_count")?,
        failures: row.get("failures")?,
        created_at: rows::date(row, "created_at")?,
        changed_at: rows::date(row, "changed_at")?,
    })
}

/// The result of a search by name.
enum Found {
    There(Box<Kept>),
    /// The row is damaged.
    Damaged,
    Nothing,
}

/// The statement, so that no other daemon can change its rows until the commit.
fn locking(tx: &Tx<'_>, sql: String) -> String {
    match tx.engine() {
        Engine::Sqlite => sql,
        Engine::Postgres => sql + " FOR UPDATE",
    }
}

/// The routine of this name, locked until the commit.
fn find(tx: &mut Tx<'_>, name: &str) -> Done<Found> {
    let sql = locking(tx, format!("SELECT {COLUMNS} FROM routines WHERE name = ?1"));
    let mut found = tx.sift(&sql, params![name], "name", kept)?;
    Ok(match found.rows.pop() {
        Some(kept) => Found::There(Box::new(kept)),
        None if found.damaged.is_empty() => Found::Nothing,
        None => Found::Damaged,
    })
}

/// The routine with this id, locked until the commit; `None` also for a damaged one, which this disables and logs.
pub(super) fn by_id(tx: &mut Tx<'_>, id: RoutineId) -> Done<Option<Kept>> {
    let sql = locking(tx, format!("SELECT {COLUMNS} FROM routines WHERE id = ?1"));
    let mut found = tx.sift(&sql, params![id.as_uuid()], "name", kept)?;
    for row in &found.damaged {
        if damaged::routine(tx, row)? {
            damaged::log_damaged(row);
        }
    }
    Ok(found.rows.pop())
}

fn kept(row: &Row<'_>) -> Done<Kept> {
    Ok(Kept { record: record(row)?, not_before: rows::optional_date(row, "not_before")? })
}

pub(super) fn defer(tx: &mut Tx<'_>, id: RoutineId, aside: Deferral) -> Done<()> {
    if tx.engine() == Engine::Postgres {
        // A statement of its own: the update would not see the end of a routine run that it has waited for.
        tx.post("SELECT 1 FROM routines WHERE id = ?1 FOR UPDATE", params![id.as_uuid()])?;
    }
    let sql = format!(
        "UPDATE routines SET not_before = ?2 WHERE id = ?1 AND next_at = ?3 AND ({}) >= ?4",
        super::routine_runs::RUNNING_OF
    );
    tx.post(&sql, params![id.as_uuid(), aside.until.0, aside.waits_for.0, aside.at_work])?;
    Ok(())
}

pub(super) fn enable(
    tx: &mut Tx<'_>,
    id: RoutineId,
    on: bool,
    why: &str,
    next_at: Option<UnixMillis>,
    at: UnixMillis,
) -> Done<Option<RoutineRecord>> {
    let Some(old) = by_id(tx, id)? else { return Ok(None) };
    let changed_at = old.record.changed_at;
    let kept = Kept { record: switched(old.record.clone(), on, why, next_at, at), not_before: None };
    if (RoutineRecord { changed_at, ..kept.record.clone() }, kept.not_before) == (old.record.clone(), old.not_before) {
        return Ok(Some(old.record)); // another node has just done the same
    }
    keep(tx, &kept)?;
    note_change(tx)?;
    Ok(Some(kept.record))
}

pub(super) fn revoke(
    tx: &mut Tx<'_>,
    id: RoutineId,
    number: usize,
    by: &str,
    at: UnixMillis,
) -> Done<Option<RoutineRecord>> {
    let Some(Kept { mut record, .. }) = by_id(tx, id)? else { return Ok(None) };
    let Some(grant) = number.checked_sub(1).and_then(|at| record.spec.allow.get_mut(at)) else { return Ok(None) };
    let was_revoked = std::mem::replace(&mut grant.revoked, true);
    let event = revoked(&record.made_in, format!("routine {}", record.spec.name), grant, by, at);
    if !was_revoked {
        append_events(tx, &[event])?;
    }
    tx.post("UPDATE routines SET spec = ?2 WHERE id = ?1", params![id.as_uuid(), rows::to_json(&record.spec)?])?;
    note_change(tx)?;
    Ok(Some(record))
}

pub(super) fn delete(tx: &mut Tx<'_>, name: &str, id: Option<RoutineId>) -> Done<bool> {
    let sql = "DELETE FROM routines WHERE name = ?1 AND (?2 IS NULL OR id = ?2)";
    let there = tx.exec(sql, params![name, id.map(|id| id.as_uuid())])? > 0;
    if there {
        note_change(tx)?;
    }
    Ok(there)
}

pub(super) fn routine(conn: &Connection, name: &str) -> Done<Sifted<RoutineRecord>> {
    sift(conn, &format!("SELECT {COLUMNS} FROM routines WHERE name = ?1"), params![name], "name", record)
}

pub(super) fn routine_at(conn: &Connection, path: &str) -> Done<Sifted<RoutineRecord>> {
    sift(conn, &format!("SELECT {COLUMNS} FROM routines WHERE path = ?1"), params![path], "name", record)
}

pub(super) fn routines(conn: &Connection) -> Done<Sifted<RoutineRecord>> {
    sift(conn, &format!("SELECT {COLUMNS} FROM routines ORDER BY name"), [], "name", record)
}

pub(super) fn due(conn: &Connection, now: UnixMillis, limit: u32) -> Done<Sifted<RoutineRecord>> {
    sift(conn, &due_sql(), params![now.0, limit], "name", record)
}

/// The numbers of enabled routines and of running routine runs.
pub(super) const NUMBERS: &str = "SELECT (SELECT COUNT(*) FROM routines WHERE enabled = 1) AS enabled,
            (SELECT COUNT(*) FROM routine_runs INDEXED BY routine_runs_running WHERE status = 'running') AS at_work";

pub(super) fn numbers(conn: &Connection) -> Done<RoutineNumbers> {
    let counted = tx::row(conn, NUMBERS, [], |row| {
        Ok((from_sql_int(row.get::<_, i64>("enabled")?), from_sql_int(row.get::<_, i64>("at_work")?)))
    })?;
    let (enabled, running) = counted.unwrap_or_default();
    Ok(RoutineNumbers { enabled, running, next_at: next_due(conn)? })
}

pub(super) fn next_due(conn: &Connection) -> Done<Option<UnixMillis>> {
    Ok(tx::row(conn, NEXT_DUE, [], |row| rows::optional_date(row, "due_at"))?.flatten())
}
