//! A connection to SQLite, and the guard of its files.

use std::cell::RefCell;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::connection::{Done, Failure};
use crate::error::OpenError;
use crate::sqlite::{FileGuard, Locks, Trouble};

/// A connection. The one that writes a file has a guard.
pub(crate) struct SqliteConnection {
    conn: rusqlite::Connection,
    /// Dropped after the connection: it has the open database file.
    guard: Option<Box<RefCell<FileGuard>>>,
}

impl From<rusqlite::Connection> for SqliteConnection {
    fn from(conn: rusqlite::Connection) -> Self {
        Self { conn, guard: None }
    }
}

impl Deref for SqliteConnection {
    type Target = rusqlite::Connection;

    fn deref(&self) -> &rusqlite::Connection {
        &self.conn
    }
}

impl SqliteConnection {
    /// The connection that writes this file, with a guard if the file is locked.
    ///
    /// # Errors
    /// See [`FileGuard::new`].
    pub(crate) fn guarded(
        conn: rusqlite::Connection,
        path: &Path,
        locks: Arc<Option<Locks>>,
    ) -> Result<Self, OpenError> {
        let guard = FileGuard::new(&conn, path, locks)?.map(|guard| Box::new(RefCell::new(guard)));
        Ok(Self { conn, guard })
    }

    /// Checks the files before a transaction.
    pub(super) fn check(&self) -> Done<()> {
        self.guarded_by(|guard, conn| guard.check(conn).map_err(Failure::Broken))
    }

    /// Completes the beginning of a transaction.
    pub(super) fn begun(&self) -> Done<()> {
        self.guarded_by(|guard, conn| Ok(guard.begun(conn)?))
    }

    /// Notes a commit. It does not count if the files are not those of this process.
    pub(super) fn committed(&self) -> Done<()> {
        self.guarded_by(|guard, conn| guard.committed(conn).map_err(Failure::Broken))
    }

    /// See [`Connection::check_idle`](super::connection::Connection::check_idle).
    pub(super) fn check_idle(&self) {
        if self.next_check().is_some_and(|due| due <= Instant::now()) {
            let _ = self.check(); // the guard has written it to the log, and refuses each transaction
        }
    }

    /// See [`Connection::next_check`](super::connection::Connection::next_check).
    pub(super) fn next_check(&self) -> Option<Instant> {
        self.guard.as_ref()?.borrow().next_check()
    }

    /// See [`Connection::trouble`](super::connection::Connection::trouble).
    pub(super) fn trouble(&self) -> Option<Trouble> {
        Some(self.guard.as_ref()?.borrow().trouble().clone())
    }

    /// Leaves a database file that needs no log.
    pub(super) fn finish(&self) {
        if let Some(guard) = &self.guard {
            return guard.borrow_mut().finish(&self.conn);
        }
        if let Err(error) = self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())) {
            tracing::warn!(%error, "the log stays beside the database; the next start reads it");
        }
    }

    fn guarded_by(&self, ask: impl FnOnce(&mut FileGuard, &rusqlite::Connection) -> Done<()>) -> Done<()> {
        self.guard.as_ref().map_or(Ok(()), |guard| ask(&mut guard.borrow_mut(), &self.conn))
    }
}
