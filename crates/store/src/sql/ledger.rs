//! Writes that belong to no lane: events, sealed secrets, and the readiness check.

use std::sync::LazyLock;

use belay_protocol::{NewEvent, SessionKey, UnixMillis};

use super::connection::Engine;
use super::rows;
use super::tx::{Done, Mark, Tx, from_sql_int};
use crate::value::{Value, params};
use crate::vault;

/// The maximum number of events of one statement. A message has two or three events; each number has a prepared
/// statement.
const EVENTS_PER_INSERT: usize = 8;

/// Appends events. PostgreSQL gets those of a whole transaction at its end: in one statement, and under a lock that
/// lets the order of their numbers be the order of commit.
pub(super) fn append_events(tx: &mut Tx<'_>, events: &[NewEvent]) -> Done<()> {
    let mut values: Vec<Value> = Vec::with_capacity(events.len() * COLUMNS);
    for event in events {
        values.push(event.at.0.into());
        values.push(event.session.as_ref().map(|session| session.to_string()).into());
        values.push(event.run_id.map(|run| run.as_uuid()).into());
        values.push(event.kind.to_stored().map_err(rows::not_json)?.into());
    }
    match tx.engine() {
        Engine::Sqlite => insert_events(tx, &values, Wait::ForCommit),
        Engine::Postgres => {
            tx.effects.events.extend(values);
            Ok(())
        }
    }
}

/// When PostgreSQL answers the insert of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// At once.
    ForInsert,
    /// With the commit, which is sent together with the insert, and which returns the last number.
    ForCommit,
}

/// Writes the events that were put off, immediately before the commit. Their lock is the last one of each transaction: its
/// holder waits for no other lock.
pub(super) fn write_deferred(tx: &mut Tx<'_>) -> Done<()> {
    let events = std::mem::take(&mut tx.effects.events);
    if events.is_empty() {
        return Ok(());
    }
    // Until the commit: a reader that has seen a number has seen all lower ones.
    tx.lock("events")?;
    insert_events(tx, &events, Wait::ForCommit)
}

/// Inserts the events that a job has put off since this state, and takes them back, so that a row that PostgreSQL rejects
/// fails its job and not the commit. Nobody sees the numbers that this uses up, and it takes no lock.
pub(super) fn try_deferred(tx: &mut Tx<'_>, since: Mark) -> Done<()> {
    let events = tx.effects.events_since(since);
    if events.is_empty() {
        return Ok(());
    }
    let before = tx.effects.mark();
    tx.post("SAVEPOINT events", [])?;
    insert_events(tx, &events, Wait::ForInsert)?;
    tx.post("ROLLBACK TO SAVEPOINT events", [])?;
    tx.effects.return_to(before);
    tx.effects.events.extend(events);
    Ok(())
}

/// The columns of an event.
const COLUMNS: usize = 4;

fn insert_events(tx: &mut Tx<'_>, values: &[Value], wait: Wait) -> Done<()> {
    for some in values.chunks(EVENTS_PER_INSERT * COLUMNS) {
        let sql = &INSERTS[some.len() / COLUMNS - 1];
        let last = match wait {
            Wait::ForInsert => Some(tx.insert(sql, some, "seq")?),
            Wait::ForCommit => tx.post_insert(sql, some, "seq")?,
        };
        tx.effects.last_event = last.or(tx.effects.last_event);
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
    tx.exclusive(&format!("secrets {session}"))?;
    let others = tx.row(
        "SELECT COUNT(*) FROM secrets WHERE session = ?1 AND name <> ?2",
        params![session.as_str(), name],
        |row| Ok(from_sql_int(row.get(0)?)),
    )?;
    if others.unwrap_or(0) >= vault::SECRETS_MAX as u64 {
        return Err(vault::too_many().into());
    }
    tx.post(
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

/// Writes a value, so that a disk that accepts no writes is noticed. On PostgreSQL the commit does: it counts in the row of
/// its writer, and several daemons would wait for each other at a row of all.
pub(super) fn ping(tx: &mut Tx<'_>) -> Done<()> {
    match tx.engine() {
        Engine::Sqlite => tx.post("UPDATE pings SET count = count + 1", []),
        Engine::Postgres => Ok(()),
    }
}
