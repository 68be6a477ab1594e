//! A connection to a database, and its rows, the same for each engine.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use belay_protocol::StoreError;

use super::outcome::{Begun, Committed};
use super::pg::PgSession;
use super::sqlite_connection::SqliteConnection;
use crate::postgres::{PgRow, index_of, value};
use crate::sqlite::{Trouble, explain};
use crate::value::{FromValue, Param, Params, ValueRef};

/// The failure of a statement or of a job.
#[derive(Debug, thiserror::Error)]
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "SQLite has one writer, and contends for nothing"))]
pub(crate) enum Failure {
    /// The job is refused, for this reason.
    #[error(transparent)]
    Refused(#[from] StoreError),
    /// The database has failed.
    #[error("{0}")]
    Broken(String),
    /// The database refuses a row of the job, and will refuse it each time.
    #[error("{0}")]
    Rejected(String),
    /// A lock was not free in the time that a transaction waits for it. Once the transaction has released its own locks, it can
    /// be repeated.
    #[error("{0}")]
    Contended(String),
    /// The job needs a lock that comes before those of earlier jobs of its transaction.
    #[error("another write holds a lock that comes later")]
    OutOfOrder,
}

/// The result of a statement or of a job.
pub(crate) type Done<T> = Result<T, Failure>;

impl Failure {
    /// The failure for a value that this program never writes.
    pub(crate) fn damaged(what: &str) -> Self {
        Self::Broken(format!("damaged: {what}"))
    }

    /// The error for the caller.
    pub(crate) fn into_store_error(self) -> StoreError {
        match self {
            Self::Refused(error) => error,
            Self::Broken(detail) | Self::Rejected(detail) | Self::Contended(detail) => StoreError::Unavailable(detail),
            order @ Self::OutOfOrder => StoreError::Unavailable(order.to_string()),
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Broken(explain(&error))
    }
}

/// The kind of a database, for the few statements that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

/// A connection. One thread uses it at a time.
pub(crate) enum Connection {
    /// To a SQLite database.
    Sqlite(SqliteConnection),
    /// To a PostgreSQL database.
    Postgres(Box<PgSession>),
}

impl Connection {
    /// Runs a statement and returns how many rows it changed.
    pub(crate) fn execute(&self, sql: &str, params: impl Params) -> Done<usize> {
        match self {
            Self::Sqlite(conn) => {
                let mut statement = conn.prepare_cached(sql)?;
                bind(&mut statement, &params)?;
                Ok(statement.raw_execute()?)
            }
            Self::Postgres(session) => session.execute(sql, &params),
        }
    }

    /// Passes the rows of a query to `read`, in order, until it returns `false`.
    pub(crate) fn each(
        &self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> Done<bool>,
    ) -> Done<()> {
        match self {
            Self::Sqlite(conn) => {
                let mut statement = conn.prepare_cached(sql)?;
                bind(&mut statement, &params)?;
                let mut rows = statement.raw_query();
                while let Some(row) = rows.next()? {
                    if !read(&Row::Sqlite(row))? {
                        break;
                    }
                }
                Ok(())
            }
            Self::Postgres(session) => {
                for row in &session.query(sql, &params)? {
                    if !read(&Row::Postgres(row))? {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    /// The first row of a query, or of a statement with `RETURNING`.
    pub(crate) fn row<T>(
        &self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> Done<T>,
    ) -> Done<Option<T>> {
        let mut found = None;
        self.each(sql, params, |row| {
            found = Some(read(row)?);
            Ok(false)
        })?;
        Ok(found)
    }

    /// All rows of a query.
    pub(crate) fn rows<T>(
        &self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> Done<T>,
    ) -> Done<Vec<T>> {
        let mut found = Vec::new();
        self.each(sql, params, |row| {
            found.push(read(row)?);
            Ok(true)
        })?;
        Ok(found)
    }

    /// Runs a statement of a transaction whose result nobody needs. PostgreSQL may report its failure later, at the latest
    /// with [`commit`](Self::commit).
    pub(crate) fn post(&self, sql: &str, params: impl Params) -> Done<()> {
        match self {
            Self::Sqlite(_) => self.execute(sql, params).map(|_| ()),
            Self::Postgres(session) => session.post(sql, &params),
        }
    }

    /// Lets the open transaction pause for longer than the limit of its connection, for what is computed between two
    /// statements. SQLite has no such limit.
    pub(crate) fn may_pause(&self, beyond: Duration) {
        match self {
            Self::Sqlite(_) => {}
            Self::Postgres(session) => session.may_pause(beyond),
        }
    }

    /// Sends a query of a transaction, whose first row is read later. PostgreSQL gets it together with the next statement
    /// that waits.
    pub(crate) fn ask<T>(&self, sql: &str, params: impl Params, read: Read<T>) -> Done<Asked<T>> {
        match self {
            Self::Sqlite(_) => self.row(sql, params, read).map(Asked::Known),
            Self::Postgres(session) => session.ask(sql, &params).map(|number| Asked::Sent(number, read)),
        }
    }

    /// The first row of a query of [`ask`](Self::ask).
    pub(crate) fn answer<T>(&self, asked: Asked<T>) -> Done<Option<T>> {
        match (asked, self) {
            (Asked::Known(row), _) => Ok(row),
            (Asked::Sent(number, read), Self::Postgres(session)) => {
                session.answer(number)?.first().map(|row| read(&Row::Postgres(row))).transpose()
            }
            (Asked::Sent(..), Self::Sqlite(_)) => Err(Failure::damaged("a query of another connection")),
        }
    }

    /// Whether the last commit may have been done although it has failed.
    pub(crate) fn is_unclear(&self) -> bool {
        match self {
            Self::Sqlite(_) => false,
            Self::Postgres(session) => session.is_unclear(),
        }
    }

    /// The counter of transactions that the server has ended because of a deadlock. SQLite, which has one writer, has none.
    pub(crate) fn deadlocks(&self) -> Arc<AtomicU64> {
        match self {
            Self::Sqlite(_) => Arc::default(),
            Self::Postgres(session) => session.deadlocks(),
        }
    }

    /// The longest wait for a lock, over all repetitions of a transaction. SQLite, which has one writer, has no locks.
    pub(crate) fn lock_limit(&self) -> Duration {
        match self {
            Self::Sqlite(_) => Duration::ZERO,
            Self::Postgres(session) => session.lock_limit(),
        }
    }

    /// Lets the open transaction wait for the locks of its further statements for so long.
    pub(crate) fn wait_for_locks(&self, limit: Duration) {
        match self {
            Self::Sqlite(_) => {}
            Self::Postgres(session) => session.wait_for_locks(limit),
        }
    }

    /// The engine.
    pub(crate) fn engine(&self) -> Engine {
        match self {
            Self::Sqlite(_) => Engine::Sqlite,
            Self::Postgres(_) => Engine::Postgres,
        }
    }

    /// Inserts rows and returns the number of the last one, which the database has chosen. `column`: where it is.
    pub(crate) fn insert(&self, sql: &str, params: impl Params, column: &str) -> Done<u64> {
        match self {
            Self::Sqlite(conn) => {
                self.execute(sql, params)?; // the column is the row id
                Ok(u64::try_from(conn.last_insert_rowid()).unwrap_or(0))
            }
            Self::Postgres(session) => {
                let mut last = 0;
                for row in &session.query(&format!("{sql} RETURNING {column}"), &params)? {
                    last = last.max(Row::Postgres(row).get::<_, i64>(0)?);
                }
                Ok(u64::try_from(last).unwrap_or(0))
            }
        }
    }

    /// Like [`insert`](Self::insert), but PostgreSQL returns the number with [`commit`](Self::commit).
    pub(crate) fn post_insert(&self, sql: &str, params: impl Params, column: &str) -> Done<Option<u64>> {
        match self {
            Self::Sqlite(_) => self.insert(sql, params, column).map(Some),
            Self::Postgres(session) => {
                session.post_insert(&format!("{sql} RETURNING {column}"), &params).map(|()| None)
            }
        }
    }

    /// The opening of the store, in the key of rows that several daemons would update otherwise. Empty for SQLite, which one
    /// daemon writes.
    pub(crate) fn node(&self) -> Vec<u8> {
        match self {
            Self::Sqlite(_) => Vec::new(),
            Self::Postgres(session) => session.boot().as_bytes().to_vec(),
        }
    }

    /// The number of changed rows since the connection was opened.
    pub(crate) fn changes(&self) -> u64 {
        match self {
            Self::Sqlite(conn) => conn.total_changes(),
            Self::Postgres(session) => session.changes(),
        }
    }

    /// Whether a transaction is open.
    pub(crate) fn in_transaction(&self) -> bool {
        match self {
            Self::Sqlite(conn) => !conn.is_autocommit(),
            Self::Postgres(session) => session.in_transaction(),
        }
    }

    /// Begins a transaction that writes.
    pub(crate) fn begin(&self) -> Done<Begun> {
        match self {
            Self::Sqlite(conn) => {
                conn.check()?;
                self.command("BEGIN IMMEDIATE")?;
                conn.begun()?;
                Ok(Begun::New)
            }
            Self::Postgres(session) => session.begin(),
        }
    }

    /// Commits the transaction.
    pub(crate) fn commit(&self) -> Done<Committed> {
        match self {
            Self::Sqlite(conn) => {
                self.command("COMMIT")?;
                conn.committed()?;
                Ok(Committed::Yes(None))
            }
            Self::Postgres(session) => session.commit(),
        }
    }

    /// Rolls the transaction back.
    pub(crate) fn rollback(&self) -> Done<()> {
        match self {
            Self::Sqlite(_) => self.command("ROLLBACK"),
            Self::Postgres(session) => session.rollback(),
        }
    }

    /// Sets a savepoint in the transaction.
    pub(crate) fn savepoint(&self) -> Done<()> {
        match self {
            Self::Sqlite(_) => self.command("SAVEPOINT job"),
            Self::Postgres(session) => session.savepoint(),
        }
    }

    /// Rolls back to the savepoint, and releases it.
    pub(crate) fn rollback_to_savepoint(&self) -> Done<()> {
        match self {
            Self::Sqlite(_) => {
                self.command("ROLLBACK TO job")?;
                self.command("RELEASE job")
            }
            Self::Postgres(session) => session.rollback_to_savepoint(),
        }
    }

    /// Releases the savepoint, after all statements since it have succeeded.
    pub(crate) fn release_savepoint(&self) -> Done<()> {
        match self {
            Self::Sqlite(_) => self.command("RELEASE job"),
            Self::Postgres(session) => session.release_savepoint(),
        }
    }

    /// Leaves a database file that needs no log. Called before the last connection is closed.
    pub(crate) fn finish(&self) {
        match self {
            Self::Sqlite(conn) => conn.finish(),
            Self::Postgres(_) => {}
        }
    }

    /// Checks the files of the database if nothing has been written for a while. Failures are in the log.
    pub(crate) fn check_idle(&self) {
        if let Self::Sqlite(conn) = self {
            conn.check_idle();
        }
    }

    /// The time of the next [`check_idle`](Self::check_idle).
    pub(crate) fn next_check(&self) -> Option<Instant> {
        match self {
            Self::Sqlite(conn) => conn.next_check(),
            Self::Postgres(_) => None,
        }
    }

    /// Why nothing is written any more, once that is known. `None`: a connection that has no guard.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        match self {
            Self::Sqlite(conn) => conn.trouble(),
            Self::Postgres(_) => None,
        }
    }

    /// Runs a statement without parameters and without rows.
    fn command(&self, sql: &str) -> Done<()> {
        self.execute(sql, []).map(|_| ())
    }
}

/// Gives a statement its parameters.
fn bind(statement: &mut rusqlite::Statement<'_>, params: &impl Params) -> Result<(), rusqlite::Error> {
    let (values, names) = (params.values(), params.names());
    let wanted = statement.parameter_count();
    if values.len() != wanted {
        return Err(rusqlite::Error::InvalidParameterCount(values.len(), wanted));
    }
    for (at, value) in values.iter().enumerate() {
        let index = match names.get(at) {
            None => at + 1,
            Some(name) => statement
                .parameter_index(name)?
                .ok_or_else(|| rusqlite::Error::InvalidParameterName((*name).to_owned()))?,
        };
        statement.raw_bind_parameter(index, value)?;
    }
    Ok(())
}

impl rusqlite::ToSql for Param<'_> {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        use rusqlite::types::{ToSqlOutput, ValueRef as Sqlite};
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null(_) => Sqlite::Null,
            Self::Int(int) => Sqlite::Integer(*int),
            Self::Real(real) => Sqlite::Real(*real),
            Self::Text(text) => Sqlite::Text(text.as_bytes()),
            Self::Blob(bytes) => Sqlite::Blob(bytes),
            Self::Id(id) => Sqlite::Blob(id.as_bytes()),
        }))
    }
}

/// Reads a row.
pub(crate) type Read<T> = fn(&Row<'_>) -> Done<T>;

/// A query whose first row is read later, see [`Connection::ask`].
#[must_use]
pub(crate) enum Asked<T> {
    /// The row.
    Known(Option<T>),
    /// The number of a query that was sent.
    Sent(u64, Read<T>),
}

impl<T> Asked<T> {
    /// The row, if it is known already.
    pub(crate) fn known(&self) -> Option<&T> {
        match self {
            Self::Known(row) => row.as_ref(),
            Self::Sent(..) => None,
        }
    }
}

/// A row of a query.
pub(crate) enum Row<'r> {
    /// Of a SQLite database.
    Sqlite(&'r rusqlite::Row<'r>),
    /// Of a PostgreSQL database.
    Postgres(&'r PgRow),
}

/// The number or the name of a column.
pub(crate) trait Column: Copy + std::fmt::Display {
    /// The value in this column.
    fn of<'r>(self, row: &Row<'r>) -> Done<ValueRef<'r>>;
}

impl Column for usize {
    fn of<'r>(self, row: &Row<'r>) -> Done<ValueRef<'r>> {
        match row {
            Row::Sqlite(row) => sqlite_value(row.get_ref(self)?),
            Row::Postgres(row) => postgres_value(row, self),
        }
    }
}

impl Column for &str {
    fn of<'r>(self, row: &Row<'r>) -> Done<ValueRef<'r>> {
        match row {
            Row::Sqlite(row) => sqlite_value(row.get_ref(self)?),
            Row::Postgres(row) => {
                let index = index_of(row, self);
                postgres_value(row, index.ok_or_else(|| Failure::damaged(&format!("there is no column {self}")))?)
            }
        }
    }
}

fn postgres_value(row: &PgRow, index: usize) -> Done<ValueRef<'_>> {
    value(row, index).map_err(|error| Failure::Broken(error.to_string()))
}

fn sqlite_value(value: rusqlite::types::ValueRef<'_>) -> Done<ValueRef<'_>> {
    use rusqlite::types::ValueRef as Sqlite;
    Ok(match value {
        Sqlite::Null => ValueRef::Null,
        Sqlite::Integer(int) => ValueRef::Int(int),
        Sqlite::Real(real) => ValueRef::Real(real),
        Sqlite::Text(text) => {
            ValueRef::Text(std::str::from_utf8(text).map_err(|_| Failure::damaged("a text that is not UTF-8"))?)
        }
        Sqlite::Blob(bytes) => ValueRef::Blob(bytes),
    })
}

impl<'r> Row<'r> {
    /// The value in a column, as this type.
    pub(crate) fn get<C: Column, T: FromValue>(&self, column: C) -> Done<T> {
        T::from_value(column.of(self)?).ok_or_else(|| Failure::damaged(&format!("column {column}")))
    }

    /// The value in a column, without a copy.
    pub(crate) fn get_ref<C: Column>(&self, column: C) -> Done<ValueRef<'r>> {
        column.of(self)
    }

    /// The text in a column, without a copy.
    pub(crate) fn text<C: Column>(&self, column: C) -> Done<&'r str> {
        column.of(self)?.as_str().ok_or_else(|| Failure::damaged(&format!("column {column}")))
    }
}
