//! Routines. What may become of one is said in [`crate::routines`].

use belay_protocol::routine::MAX_ROUTINES;
use belay_protocol::{NewRoutine, RoutineNumbers, RoutinePut, RoutineRecord, UnixMillis};
use rusqlite::{Connection, Row, named_params, params};

use super::rows;
use super::tx::{self, Done, Tx, from_sql_int, to_sql_int};
use crate::routines::{made, name_taken, path_of, path_taken, put_again, switched, too_many};

/// Columns that [`record`] reads.
const COLUMNS: &str = "name, spec, channel, principal, asker_place, relayed, made_in, reply_to, origin, enabled, \
     disabled_why, revision, next_at, claimed_to, fired_at, set_off_at, firings, failures, created_at, changed_at";

/// Those whose time has come by `?1`: who is off has no next time.
pub(super) fn due_sql() -> String {
    format!("SELECT {COLUMNS} FROM routines WHERE next_at <= ?1 ORDER BY next_at, name LIMIT ?2")
}

pub(super) const NEXT_DUE: &str = "SELECT MIN(next_at) AS next_at FROM routines WHERE next_at IS NOT NULL";

/// A routine as it is kept.
pub(super) struct Kept {
    pub(super) record: RoutineRecord,
    /// When it was last set off other than by hand.
    pub(super) set_off_at: Option<UnixMillis>,
}

pub(super) fn put(tx: &mut Tx<'_>, new: &NewRoutine, fresh: bool) -> Done<RoutinePut> {
    let name = &new.spec.name;
    let old = find(tx, name)?;
    if old.is_some() && fresh {
        return Ok(name_taken(name));
    }
    if old.is_none() {
        let there = tx.row("SELECT COUNT(*) FROM routines", [], |row| Ok(from_sql_int(row.get(0)?)))?;
        if there.unwrap_or(0) >= u64::from(MAX_ROUTINES) {
            return Ok(too_many());
        }
    }
    if let Some(path) = path_of(&new.spec.trigger) {
        let sql = "SELECT name FROM routines WHERE path = ?1 AND name <> ?2";
        if let Some(by) = tx.row(sql, params![path, name], |row| Ok(row.get::<_, String>(0)?))? {
            return Ok(path_taken(path, &by));
        }
    }
    let kept = match old {
        Some(old) => Kept { record: put_again(old.record, new.clone()), set_off_at: old.set_off_at },
        None => Kept { record: made(new.clone()), set_off_at: None },
    };
    write(tx, &kept)?;
    Ok(RoutinePut::Done(Box::new(kept.record)))
}

fn write(tx: &mut Tx<'_>, Kept { record, set_off_at }: &Kept) -> Done<()> {
    let date = |date: Option<UnixMillis>| date.map(|date| date.0);
    tx.exec(
        // Its path is free: nothing but its own row is replaced.
        "INSERT OR REPLACE INTO routines (name, spec, path, channel, principal, asker_place, relayed, made_in, reply_to, origin,
                                          enabled, disabled_why, revision, next_at, claimed_to, fired_at, set_off_at, firings,
                                          failures, created_at, changed_at)
         VALUES (:name, :spec, :path, :channel, :principal, :asker_place, :relayed, :made_in, :reply_to, :origin, :enabled,
                 :disabled_why, :revision, :next_at, :claimed_to, :fired_at, :set_off_at, :firings, :failures, :created_at,
                 :changed_at)",
        named_params! {
            ":name": record.spec.name,
            ":spec": rows::to_json(&record.spec)?,
            ":path": path_of(&record.spec.trigger),
            ":channel": record.channel.as_str(),
            ":principal": record.creator.principal,
            ":asker_place": rows::place_word(record.creator.place),
            ":relayed": record.creator.relayed,
            ":made_in": record.made_in.as_str(),
            ":reply_to": record.reply_to.as_ref().map(rows::to_json).transpose()?,
            ":origin": rows::to_json(&record.origin)?,
            ":enabled": record.enabled,
            ":disabled_why": record.disabled_why,
            ":revision": record.revision,
            ":next_at": date(record.next_at),
            ":claimed_to": date(record.claimed_to),
            ":fired_at": date(record.fired_at),
            ":set_off_at": date(*set_off_at),
            ":firings": to_sql_int(record.firings),
            ":failures": record.failures,
            ":created_at": record.created_at.0,
            ":changed_at": record.changed_at.0,
        },
    )?;
    Ok(())
}

/// Writes what firings and switches change: all but what it is and whose.
pub(super) fn keep(tx: &mut Tx<'_>, Kept { record, set_off_at }: &Kept) -> Done<()> {
    let date = |date: Option<UnixMillis>| date.map(|date| date.0);
    tx.exec(
        "UPDATE routines SET enabled = ?2, disabled_why = ?3, next_at = ?4, claimed_to = ?5, fired_at = ?6, set_off_at = ?7,
                             firings = ?8, failures = ?9, changed_at = ?10
         WHERE name = ?1",
        params![
            record.spec.name,
            record.enabled,
            record.disabled_why,
            date(record.next_at),
            date(record.claimed_to),
            date(record.fired_at),
            date(*set_off_at),
            to_sql_int(record.firings),
            record.failures,
            record.changed_at.0
        ],
    )?;
    Ok(())
}

fn record(row: &Row<'_>) -> Done<RoutineRecord> {
    let json = |column| -> Done<String> { Ok(row.get(column)?) };
    let reply_to: Option<String> = row.get("reply_to")?;
    Ok(RoutineRecord {
        spec: rows::from_json(&json("spec")?)?,
        creator: rows::asker(row)?,
        channel: row.get::<_, String>("channel")?.into(),
        made_in: row.get::<_, String>("made_in")?.into(),
        reply_to: reply_to.map(|text| rows::from_json(&text)).transpose()?,
        origin: rows::from_json(&json("origin")?)?,
        enabled: row.get("enabled")?,
        disabled_why: row.get("disabled_why")?,
        revision: row.get("revision")?,
        next_at: rows::optional_date(row, "next_at")?,
        claimed_to: rows::optional_date(row, "claimed_to")?,
        fired_at: rows::optional_date(row, "fired_at")?,
        firings: rows::count(row, "firings")?,
        failures: row.get("failures")?,
        created_at: rows::date(row, "created_at")?,
        changed_at: rows::date(row, "changed_at")?,
    })
}

pub(super) fn find(tx: &mut Tx<'_>, name: &str) -> Done<Option<Kept>> {
    tx.row(&format!("SELECT {COLUMNS} FROM routines WHERE name = ?1"), params![name], |row| {
        Ok(Kept { record: record(row)?, set_off_at: rows::optional_date(row, "set_off_at")? })
    })
}

pub(super) fn enable(
    tx: &mut Tx<'_>,
    name: &str,
    on: bool,
    why: &str,
    next_at: Option<UnixMillis>,
    at: UnixMillis,
) -> Done<Option<RoutineRecord>> {
    let Some(Kept { record, set_off_at }) = find(tx, name)? else { return Ok(None) };
    let kept = Kept { record: switched(record, on, why, next_at, at), set_off_at };
    keep(tx, &kept)?;
    Ok(Some(kept.record))
}

pub(super) fn delete(tx: &mut Tx<'_>, name: &str) -> Done<bool> {
    Ok(tx.exec("DELETE FROM routines WHERE name = ?1", params![name])? > 0)
}

pub(super) fn routine(conn: &Connection, name: &str) -> Done<Option<RoutineRecord>> {
    tx::row(conn, &format!("SELECT {COLUMNS} FROM routines WHERE name = ?1"), params![name], record)
}

pub(super) fn routine_at(conn: &Connection, path: &str) -> Done<Option<RoutineRecord>> {
    tx::row(conn, &format!("SELECT {COLUMNS} FROM routines WHERE path = ?1"), params![path], record)
}

pub(super) fn routines(conn: &Connection) -> Done<Vec<RoutineRecord>> {
    tx::rows(conn, &format!("SELECT {COLUMNS} FROM routines ORDER BY name"), [], record)
}

pub(super) fn due(conn: &Connection, now: UnixMillis, limit: u32) -> Done<Vec<RoutineRecord>> {
    tx::rows(conn, &due_sql(), params![now.0, limit], record)
}

/// Routines that are on, and firings at work.
pub(super) const NUMBERS: &str = "SELECT (SELECT COUNT(*) FROM routines WHERE enabled = 1) AS enabled,
            (SELECT COUNT(*) FROM firings INDEXED BY firings_running WHERE status = 'running') AS at_work";

pub(super) fn numbers(conn: &Connection) -> Done<RoutineNumbers> {
    let counted = tx::row(conn, NUMBERS, [], |row| {
        Ok((from_sql_int(row.get::<_, i64>("enabled")?), from_sql_int(row.get::<_, i64>("at_work")?)))
    })?;
    let (enabled, at_work) = counted.unwrap_or_default();
    Ok(RoutineNumbers { enabled, at_work, next_at: next_due(conn)? })
}

pub(super) fn next_due(conn: &Connection) -> Done<Option<UnixMillis>> {
    Ok(tx::row(conn, NEXT_DUE, [], |row| rows::optional_date(row, "next_at"))?.flatten())
}
