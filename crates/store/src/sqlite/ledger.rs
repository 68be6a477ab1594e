//! What belongs to no lane: events, money, notes, sealed secrets, and the readiness check.

use belay_protocol::{NewEvent, Purpose, RunId, SessionKey, Spent, StoreError, UnixMillis};
use rusqlite::types::Value;
use rusqlite::{params, params_from_iter};

use super::rows;
use super::tx::{Done, Failure, Tx, from_sql_int, to_sql_int};
use crate::limits::AMOUNT_MAX_MICRO_USD;
use crate::{notes, vault};

/// Events of one statement. A message's events come in twos and threes; each number has a prepared statement.
const EVENTS_PER_INSERT: usize = 8;

pub(super) fn append_events(tx: &mut Tx<'_>, events: &[NewEvent]) -> Done<()> {
    for some in events.chunks(EVENTS_PER_INSERT) {
        let mut values: Vec<Value> = Vec::with_capacity(some.len() * 4);
        for event in some {
            values.push(event.at.0.into());
            values.push(event.session.as_ref().map(|session| session.to_string()).into());
            values.push(event.run_id.map(|run| run.as_uuid()).into());
            values.push(rows::to_json(&event.kind)?.into());
        }
        let places = vec!["(?, ?, ?, ?)"; some.len()].join(", ");
        tx.exec(&format!("INSERT INTO events (at, session, run_id, kind) VALUES {places}"), params_from_iter(values))?;
        tx.effects.last_event = Some(tx.last_insert());
    }
    Ok(())
}

pub(super) fn spent(tx: &mut Tx<'_>, utc_day: i64) -> Done<Spent> {
    let each = tx.rows("SELECT purpose, micro_usd FROM spend WHERE utc_day = ?1", params![utc_day], |row| {
        Ok((rows::purpose(row)?, rows::count(row, "micro_usd")?))
    })?;
    let mut spent = Spent::default();
    each.into_iter().for_each(|(purpose, micro_usd)| spent.add(purpose, micro_usd));
    Ok(spent)
}

pub(super) fn session_spent(tx: &mut Tx<'_>, session: &SessionKey) -> Done<u64> {
    // TOTAL adds as floating point and cannot overflow; a sum beyond 2^53 is beyond every limit all the same.
    let sql = "SELECT CAST(TOTAL(cost_micro_usd) AS INTEGER) AS micro_usd FROM runs WHERE session = ?1";
    let sum = tx.row(sql, params![session.as_str()], |row| rows::count(row, "micro_usd"))?;
    Ok(sum.unwrap_or(0))
}

pub(super) fn reserve(tx: &mut Tx<'_>, run: RunId, purpose: Purpose, utc_day: i64, micro_usd: u64) -> Done<u64> {
    let amount = to_sql_int(micro_usd.min(AMOUNT_MAX_MICRO_USD));
    tx.exec(
        "INSERT INTO spend (utc_day, purpose, micro_usd) VALUES (?1, ?2, ?3)
         ON CONFLICT (utc_day, purpose) DO UPDATE SET micro_usd = micro_usd + excluded.micro_usd",
        params![utc_day, purpose.word(), amount],
    )?;
    tx.exec(
        "INSERT INTO reservations (utc_day, run_id, purpose, micro_usd) VALUES (?1, ?2, ?3, ?4)",
        params![utc_day, run.as_uuid(), purpose.word(), amount],
    )?;
    Ok(tx.last_insert())
}

pub(super) fn settle(tx: &mut Tx<'_>, reservation: u64, micro_usd: u64) -> Done<()> {
    let amount = to_sql_int(micro_usd.min(AMOUNT_MAX_MICRO_USD));
    let sql = "SELECT utc_day, micro_usd, purpose FROM reservations WHERE id = ?1";
    let counted = tx.row(sql, params![to_sql_int(reservation)], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, rows::purpose(row)?))
    })?;
    let (utc_day, before, purpose) =
        counted.ok_or_else(|| Failure::Refused(StoreError::NotFound(format!("reservation {reservation}"))))?;
    tx.exec(
        "UPDATE reservations SET micro_usd = ?2, settled = 1 WHERE id = ?1",
        params![to_sql_int(reservation), amount],
    )?;
    tx.exec(
        "UPDATE spend SET micro_usd = micro_usd + ?3 WHERE utc_day = ?1 AND purpose = ?2",
        params![utc_day, purpose.word(), amount - before],
    )?;
    Ok(())
}

pub(super) fn remember(tx: &mut Tx<'_>, session: &SessionKey, key: &str, text: &str, at: UnixMillis) -> Done<()> {
    notes::check_size(key, text)?;
    let others =
        tx.row("SELECT COUNT(*) FROM notes WHERE session = ?1 AND key <> ?2", params![session.as_str(), key], |row| {
            Ok(from_sql_int(row.get(0)?))
        })?;
    if others.unwrap_or(0) >= notes::NOTES_MAX as u64 {
        return Err(notes::too_many().into());
    }
    tx.exec(
        "INSERT INTO notes (session, key, at, text) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (session, key) DO UPDATE SET at = excluded.at, text = excluded.text",
        params![session.as_str(), key, at.0, text],
    )?;
    Ok(())
}

pub(super) fn put_sealed(tx: &mut Tx<'_>, session: &SessionKey, name: &str, sealed: &[u8], at: UnixMillis) -> Done<()> {
    let others = tx.row(
        "SELECT COUNT(*) FROM secrets WHERE session = ?1 AND name <> ?2",
        params![session.as_str(), name],
        |row| Ok(from_sql_int(row.get(0)?)),
    )?;
    if others.unwrap_or(0) >= vault::SECRETS_MAX as u64 {
        return Err(vault::too_many().into());
    }
    tx.exec(
        "INSERT INTO secrets (session, name, at, sealed) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (session, name) DO UPDATE SET at = excluded.at, sealed = excluded.sealed",
        params![session.as_str(), name, at.0, sealed],
    )?;
    Ok(())
}

pub(super) fn remove_sealed(tx: &mut Tx<'_>, session: &SessionKey, name: &str) -> Done<bool> {
    let removed = tx.exec("DELETE FROM secrets WHERE session = ?1 AND name = ?2", params![session.as_str(), name])?;
    Ok(removed > 0)
}

pub(super) fn remove_all_sealed(tx: &mut Tx<'_>, session: &SessionKey) -> Done<u32> {
    let removed = tx.exec("DELETE FROM secrets WHERE session = ?1", params![session.as_str()])?;
    Ok(u32::try_from(removed).unwrap_or(u32::MAX))
}

/// Writes something, so that a disk that takes no writes is noticed.
pub(super) fn ping(tx: &mut Tx<'_>) -> Done<()> {
    tx.exec("UPDATE pings SET count = count + 1", [])?;
    Ok(())
}
