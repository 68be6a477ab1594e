//! The executor of a store in memory: one connection, which each caller uses in its own task.
//!
//! It keeps the promises of the file's threads in the simplest way: each job is a transaction of its own, committed
//! before the caller gets its result; readers of signals are woken in between. Nothing here awaits, so no other task
//! runs in between, and paused time does not advance.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use belay_protocol::StoreError;

use super::connection::Connection;
use super::index;
use super::readers;
use super::tx::{Done, Effects, Failure, Tx};
use super::writer::{Counters, Signals};
use crate::queue::closed;

/// The number of events that are indexed together.
const INDEX_EVENTS: i64 = 128;

/// The connection; `None` after closing. The lock is held for one operation, never over an `.await`.
pub(super) struct Inline(Mutex<Option<Connection>>);

impl Inline {
    pub(super) fn new(conn: rusqlite::Connection) -> Self {
        readers::count_statements(&conn);
        Self(Mutex::new(Some(Connection::Sqlite(conn.into()))))
    }

    /// Executes the job in a transaction, commits, sends the signals, and returns the result.
    pub(super) fn write<T>(
        &self,
        signals: &Signals,
        counters: &Counters,
        run: impl Fn(&mut Tx<'_>) -> Done<T>,
    ) -> Result<T, StoreError> {
        let guard = self.lock();
        let conn = guard.as_ref().ok_or_else(closed)?;
        counters.jobs.fetch_add(1, Ordering::Relaxed);
        let mut effects = Effects::default();
        let done = transaction(conn, || run(&mut Tx::new(conn, &mut effects)));
        if done.is_ok() {
            signals.committed(counters, &effects);
        }
        if effects.last_event.is_some() {
            index_behind(conn);
        }
        done.map_err(Failure::into_store_error)
    }

    /// Executes a read. All data is committed.
    pub(super) fn read<T>(
        &self,
        counters: &Counters,
        read: impl FnOnce(&Connection) -> Done<T>,
    ) -> Result<T, StoreError> {
        let guard = self.lock();
        let conn = guard.as_ref().ok_or_else(closed)?;
        readers::counted(counters, || read(conn)).map_err(Failure::into_store_error)
    }

    /// Closes the connection, which deletes all data.
    pub(super) fn close(&self) {
        self.lock().take();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Connection>> {
        // A job that panicked may have left a transaction open, which the next one rolls back.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Indexes events once many are not indexed.
fn index_behind(conn: &Connection) {
    let behind = "SELECT (SELECT MAX(seq) FROM events) - event FROM indexed";
    let behind = super::tx::row(conn, behind, [], |row| row.get::<_, i64>(0));
    if behind.is_ok_and(|behind| behind.is_some_and(|events| events >= INDEX_EVENTS))
        && let Err(error) = transaction(conn, || index::catch_up(&mut Tx::new(conn, &mut Effects::default())))
    {
        tracing::warn!(%error, "the indexes could not be written");
    }
}

/// Executes the job completely or not at all.
fn transaction<T>(conn: &Connection, run: impl FnOnce() -> Done<T>) -> Done<T> {
    if conn.in_transaction() {
        conn.rollback()?;
    }
    conn.begin()?;
    let done = run().and_then(|value| conn.commit().map(|_| value));
    if done.is_err() && conn.in_transaction() {
        conn.rollback()?;
    }
    done
}
