//! Damaged rows of routines and routine runs. They are skipped and disabled once, with the reason, so that none of them
//! affects another row.

use belay_protocol::{Durability, RoutineRunStatus};
use uuid::Uuid;

use super::SqlStore;
use super::connection::{Connection, Row};
use super::routines::note_change;
use super::tx::{Done, Failure, Tx};
use crate::value::{Params, Value, params};

/// The rows of a read, and the damaged ones.
pub(super) struct Sifted<T> {
    pub(super) rows: Vec<T>,
    pub(super) damaged: Vec<Damaged>,
}

/// A damaged row.
#[derive(Clone, Debug)]
pub(super) struct Damaged {
    /// The value that identifies it in its table: the name of a routine, the id of a routine run.
    pub(super) name: Value,
    /// The problem.
    why: String,
}

/// Disables a damaged row. Returns whether that changed anything.
pub(super) type Disable = fn(&mut Tx<'_>, &Damaged) -> Done<bool>;

/// All rows of a query, with the damaged ones apart. `name`: the column that identifies a row.
pub(super) fn sift<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    name: &str,
    read: impl Fn(&Row<'_>) -> Done<T>,
) -> Done<Sifted<T>> {
    sift_first(conn, sql, params, name, usize::MAX, read)
}

/// The first valid rows of a query, at most `most`, with the damaged ones before them apart: a list that a damaged row
/// shortened would look like a last page.
pub(super) fn sift_first<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    name: &str,
    most: usize,
    read: impl Fn(&Row<'_>) -> Done<T>,
) -> Done<Sifted<T>> {
    let mut sifted = Sifted { rows: Vec::new(), damaged: Vec::new() };
    if most == 0 {
        return Ok(sifted);
    }
    conn.each(sql, params, |row| {
        match read(row) {
            Ok(it) => sifted.rows.push(it),
            Err(Failure::Broken(why)) => sifted.damaged.push(Damaged { name: row.get(name)?, why }),
            Err(refused) => return Err(refused),
        }
        Ok(sifted.rows.len() < most)
    })?;
    Ok(sifted)
}

/// Disables a routine. It is no longer due, and storing it again replaces it.
pub(super) fn routine(tx: &mut Tx<'_>, row: &Damaged) -> Done<bool> {
    let switched = tx.exec(
        "UPDATE routines SET enabled = 0, next_at = NULL, not_before = NULL, disabled_detail = ?2 WHERE name = ?1 AND enabled = 1",
        params![row.name, format!("what is stored of it cannot be read: {}", row.why)],
    )? > 0;
    if switched {
        note_change(tx)?;
    }
    Ok(switched)
}

/// Ends a routine run, so that it holds no slot. It does not count as a failure of the routine, whose name may belong
/// to another routine by now.
pub(super) fn routine_run(tx: &mut Tx<'_>, row: &Damaged) -> Done<bool> {
    let ended = tx.exec(
        "UPDATE routine_runs SET status = ?2, summary = ?3, ended_at = claimed_at WHERE id = ?1 AND status = 'running'",
        params![row.name, RoutineRunStatus::Failed.word(), format!("what is stored of it cannot be read: {}", row.why)],
    )?;
    Ok(ended > 0)
}

impl SqlStore {
    /// The valid rows. The damaged ones are disabled and logged once.
    pub(super) async fn valid_rows<T>(&self, sifted: Sifted<T>, disable: Disable) -> Vec<T> {
        let Sifted { rows, damaged } = sifted;
        if !damaged.is_empty() {
            let set_aside = move |tx: &mut Tx<'_>| {
                let mut changed = Vec::new();
                for row in &damaged {
                    if disable(tx, row)? {
                        changed.push(row.clone());
                    }
                }
                Ok(changed)
            };
            match self.write(Durability::Committed, set_aside).await {
                Ok(changed) => changed.iter().for_each(log_damaged),
                Err(error) => tracing::warn!(%error, "rows that cannot be read were passed over, and stay as they are"),
            }
        }
        rows
    }
}

/// Logs a damaged row.
pub(super) fn log_damaged(row: &Damaged) {
    let name = match &row.name {
        Value::Text(name) => name.to_string(),
        Value::Blob(id) => Uuid::from_slice(id).map_or_else(|_| format!("{id:02x?}"), |id| id.to_string()),
        other => format!("{other:?}"),
    };
    tracing::error!(row = name, why = row.why, "a routine or routine run is damaged and was disabled");
}
