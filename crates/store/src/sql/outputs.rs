//! Kept outputs of tools in the table `kept_outputs`, in parts of [`PART_BYTES`].
//!
//! An output is written by one node, and nobody reads it before it has its size. It belongs to a run, not to the lease of
//! a lane: a node that has lost the lane may still finish an output, to which no message refers.

use belay_protocol::{CallId, Durability, OutputName, OutputPart, RunId, StoreError, UnixMillis};

use super::connection::Connection;
use super::tx::{self, Done, Failure, Tx, from_sql_int, to_sql_int};
use super::{SqlStore, rows};
use crate::limits::id_before;
use crate::parts::PART_BYTES;
use crate::value::params;

/// The time after which an output without a new part counts as abandoned: its node was killed. Longer than the longest
/// command (a day), which may write slowly.
const ABANDONED_MS: i64 = 2 * 24 * 3600 * 1000;

/// Most outputs that one write deletes. Each has 64 parts at most, with the default of `tools.outputs.max_bytes`.
const BATCH: i64 = 50;

/// Deletes an output.
const DELETE: &str = "DELETE FROM kept_outputs WHERE run_id = ?1 AND number = ?2";

/// The end of an output.
#[derive(Clone, Debug)]
pub(crate) struct LastPart {
    /// The size of the whole output in bytes.
    pub(crate) size: u64,
    /// The bytes that are not stored yet.
    pub(crate) bytes: Vec<u8>,
    /// Most bytes of all outputs together.
    pub(crate) max_total_bytes: u64,
    pub(crate) at: UnixMillis,
}

impl SqlStore {
    /// Stores the first part of an output that has further ones, and returns its name. Committed.
    pub(crate) async fn begin_output(
        &self,
        run: RunId,
        call: CallId,
        bytes: Vec<u8>,
        at: UnixMillis,
    ) -> Result<OutputName, StoreError> {
        self.write(Durability::Committed, move |tx| {
            delete_abandoned(tx, at)?;
            begin(tx, run, &call, &bytes, at)
        })
        .await
    }

    /// Stores a further part. Committed.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]: the output was removed.
    pub(crate) async fn put_output_part(
        &self,
        name: OutputName,
        part: u64,
        bytes: Vec<u8>,
        at: UnixMillis,
    ) -> Result<(), StoreError> {
        self.write(Durability::Committed, move |tx| {
            let touch = "UPDATE kept_outputs SET at = ?3
                         WHERE run_id = ?1 AND number = ?2 AND part = 0 AND size IS NULL";
            changed(tx.exec(touch, params![name.run().as_uuid(), name.number(), at.0])?)?;
            put(tx, &name, part, &bytes, at)
        })
        .await
    }

    /// Stores the rest of an output with so many parts, and removes the oldest others beyond the limit. Committed.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]: the output was removed.
    pub(crate) async fn finish_output(&self, name: OutputName, parts: u64, last: LastPart) -> Result<(), StoreError> {
        self.write(Durability::Committed, move |tx| {
            if !last.bytes.is_empty() {
                put(tx, &name, parts, &last.bytes, last.at)?;
            }
            finish(tx, &name, &last)
        })
        .await
    }

    /// Stores a whole output of at most one part, as [`begin_output`](Self::begin_output) and
    /// [`finish_output`](Self::finish_output) in one commit.
    pub(crate) async fn keep_output(&self, run: RunId, call: CallId, last: LastPart) -> Result<OutputName, StoreError> {
        self.write(Durability::Committed, move |tx| {
            let name = begin(tx, run, &call, &last.bytes, last.at)?;
            finish(tx, &name, &last)?;
            Ok(name)
        })
        .await
    }

    /// Removes an output that is not finished. Best effort, without waiting.
    pub(crate) fn drop_output(&self, name: OutputName) {
        self.try_write(move |tx| {
            let delete = "DELETE FROM kept_outputs WHERE run_id = ?1 AND number = ?2 AND NOT EXISTS
                              (SELECT 1 FROM kept_outputs o WHERE o.run_id = ?1 AND o.number = ?2 AND o.size IS NOT NULL)";
            tx.post(delete, params![name.run().as_uuid(), name.number()])
        });
    }

    /// A part of a finished output; `None`: there is none of this name.
    pub(crate) async fn output_part(
        &self,
        name: OutputName,
        from: u64,
        most: u64,
    ) -> Result<Option<OutputPart>, StoreError> {
        self.read(move |conn| read(conn, &name, from, most)).await
    }

    /// Removes the finished outputs of runs that were accepted before a date, some in each commit, and those that were
    /// abandoned before it. Returns the number of the finished ones.
    pub(crate) async fn forget_outputs(&self, before: UnixMillis) -> Result<u64, StoreError> {
        let mut removed = 0;
        loop {
            let outputs = self.write(Durability::Committed, move |tx| forget_before(tx, before)).await?;
            if outputs == 0 {
                return Ok(removed);
            }
            removed += outputs;
        }
    }
}

/// Deletes the outputs of a run.
pub(super) fn forget_of_run(tx: &mut Tx<'_>, run: RunId) -> Done<()> {
    tx.post("DELETE FROM kept_outputs WHERE run_id = ?1", params![run.as_uuid()])
}

/// Stores the first part of an output under the next number of its run.
fn begin(tx: &mut Tx<'_>, run: RunId, call: &CallId, bytes: &[u8], at: UnixMillis) -> Done<OutputName> {
    tx.exclusive(&format!("outputs of {run}"))?;
    let sql = "SELECT COALESCE(MAX(number), 0) FROM kept_outputs WHERE run_id = ?1";
    let newest = tx.row(sql, params![run.as_uuid()], |row| row.get::<_, i64>(0))?.unwrap_or(0);
    let name = OutputName::new(run, u32::try_from(newest).unwrap_or(u32::MAX).saturating_add(1), call);
    put(tx, &name, 0, bytes, at)?;
    Ok(name)
}

fn put(tx: &mut Tx<'_>, name: &OutputName, part: u64, bytes: &[u8], at: UnixMillis) -> Done<()> {
    let put = "INSERT INTO kept_outputs (run_id, number, part, call, at, bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    tx.post(put, params![name.run().as_uuid(), name.number(), to_sql_int(part), name.call(), at.0, bytes])
}

/// Gives an output its size.
fn finish(tx: &mut Tx<'_>, name: &OutputName, last: &LastPart) -> Done<()> {
    let finish = "UPDATE kept_outputs SET at = ?3, size = ?4
                  WHERE run_id = ?1 AND number = ?2 AND part = 0 AND size IS NULL";
    changed(tx.exec(finish, params![name.run().as_uuid(), name.number(), last.at.0, to_sql_int(last.size)])?)?;
    make_room(tx, name, last.max_total_bytes)
}

/// Deletes the oldest other finished outputs until all fit the limit. The next output continues what is more than
/// [`BATCH`], after a lower limit was set.
fn make_room(tx: &mut Tx<'_>, name: &OutputName, max_total_bytes: u64) -> Done<()> {
    // Two nodes that finish an output at the same time would both delete for both, or neither.
    tx.exclusive("the limit of kept outputs")?;
    let sum = "SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM kept_outputs WHERE part = 0";
    let mut total = tx.row(sum, [], |row| Ok(from_sql_int(row.get(0)?)))?.unwrap_or(0);
    if total <= max_total_bytes {
        return Ok(());
    }
    let oldest = "SELECT run_id, number, size FROM kept_outputs
                  WHERE part = 0 AND size IS NOT NULL AND NOT (run_id = ?1 AND number = ?2)
                  ORDER BY run_id, number LIMIT ?3";
    let oldest = tx.rows(oldest, params![name.run().as_uuid(), name.number(), BATCH], |row| {
        Ok((rows::id::<RunId>(row, "run_id")?, row.get::<_, i64>("number")?, from_sql_int(row.get("size")?)))
    })?;
    for (run, number, size) in oldest {
        if total <= max_total_bytes {
            break;
        }
        tx.post(DELETE, params![run.as_uuid(), number])?;
        total = total.saturating_sub(size);
    }
    Ok(())
}

fn forget_before(tx: &mut Tx<'_>, before: UnixMillis) -> Done<u64> {
    delete_abandoned(tx, before)?;
    let old = "SELECT run_id, number FROM kept_outputs
               WHERE part = 0 AND size IS NOT NULL AND run_id < ?1 ORDER BY run_id, number LIMIT ?2";
    let old = tx.rows(old, params![id_before(before), BATCH], |row| {
        Ok((rows::id::<RunId>(row, "run_id")?, row.get::<_, i64>("number")?))
    })?;
    for (run, number) in &old {
        tx.post(DELETE, params![run.as_uuid(), number])?;
    }
    Ok(old.len() as u64)
}

fn delete_abandoned(tx: &mut Tx<'_>, now: UnixMillis) -> Done<()> {
    let delete = "DELETE FROM kept_outputs WHERE (run_id, number) IN
                      (SELECT run_id, number FROM kept_outputs WHERE part = 0 AND size IS NULL AND at < ?1)";
    tx.post(delete, params![now.0.saturating_sub(ABANDONED_MS)])
}

fn read(conn: &Connection, name: &OutputName, from: u64, most: u64) -> Done<Option<OutputPart>> {
    let (run, number) = (name.run().as_uuid(), name.number());
    let sql = "SELECT size FROM kept_outputs
               WHERE run_id = ?1 AND number = ?2 AND call = ?3 AND part = 0 AND size IS NOT NULL";
    let size = tx::row(conn, sql, params![run, number, name.call()], |row| Ok(from_sql_int(row.get(0)?)))?;
    let Some(size) = size else { return Ok(None) };
    let until = size.min(from.saturating_add(most));
    if from >= until {
        return Ok(Some(OutputPart { bytes: Vec::new(), size }));
    }
    let part_bytes = PART_BYTES as u64;
    let (first, last) = (from / part_bytes, (until - 1) / part_bytes);
    let mut bytes = Vec::new();
    for part in first..=last {
        let sql = "SELECT bytes FROM kept_outputs WHERE run_id = ?1 AND number = ?2 AND part = ?3";
        let found = tx::row(conn, sql, params![run, number, to_sql_int(part)], |row| row.get::<_, Vec<u8>>("bytes"))?;
        // Removed since the first query.
        let Some(found) = found else { return Ok(None) };
        bytes.extend_from_slice(&found);
    }
    let begin = index(from - first * part_bytes, bytes.len());
    let end = index(until - first * part_bytes, bytes.len());
    Ok(Some(OutputPart { bytes: bytes[begin..end].to_vec(), size }))
}

/// A place in so many bytes.
fn index(at: u64, len: usize) -> usize {
    usize::try_from(at).unwrap_or(len).min(len)
}

/// The error of an output that was removed while it was written.
fn changed(rows: usize) -> Done<()> {
    if rows > 0 {
        return Ok(());
    }
    let what = "the output, which was removed while it was written: its conversation was deleted, or it was written too slowly";
    Err(Failure::Refused(StoreError::NotFound(what.to_owned())))
}
