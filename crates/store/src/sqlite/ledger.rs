//! Writes that belong to no lane: events, sealed secrets, and the readiness check.

use std::sync::LazyLock;

use belay_protocol::{NewEvent, SessionKey, UnixMillis};
use rusqlite::types::Value;
use rusqlite::{params, params_from_iter};

use super::rows;
use super::tx::{Done, Tx, from_sql_int};
use crate::vault;

/// The maximum number of events of one statement. A message has two or three events; each number has a prepared
/// statement.
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
        tx.exec(&INSERTS[some.len() - 1], params_from_iter(values))?;
        tx.effects.last_event = Some(tx.last_insert());
    }
    Ok(())
}

/// The statements for each number of events. `OR FAIL`: see [`Tx`].
static INSERTS: LazyLock<[String; EVENTS_PER_INSERT]> = LazyLock::new(|| {
    std::array::from_fn(|at| {
        let places = vec!["(?, ?, ?, ?)"; at + 1].join(", ");
        format!("INSERT OR FAIL INTO events (at, session, run_id, kind) VALUES {places}")
    })
});

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

/// Writes a value, so that a disk that accepts no writes is noticed.
pub(super) fn ping(tx: &mut Tx<'_>) -> Done<()> {
    tx.exec("UPDATE pings SET count = count + 1", [])?;
    Ok(())
}
