//! The transaction in which jobs write, and the failures of a job.

use belay_protocol::StoreError;
use rusqlite::{Connection, Params, Row};

use super::damaged::{Sifted, sift};

/// The open transaction, as one job sees it.
///
/// A job that fails is rolled back as a whole. So the statements on a message's path that write more than one row, or
/// return one, say `OR FAIL`: with the default, SQLite copies every page that they change first, to undo the statement alone.
pub(super) struct Tx<'a> {
    conn: &'a Connection,
    pub(super) effects: &'a mut Effects,
}

/// The effects of a transaction that are signalled after its commit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Effects {
    /// The number of the last event.
    pub(super) last_event: Option<u64>,
    /// Whether there are new rows in the outbox.
    pub(super) outbox: bool,
    /// Statements executed, without those of `indexing`.
    pub(super) statements: u64,
    /// Statements that indexed events behind the reply.
    pub(super) indexing: u64,
}

/// The failure of a job.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The job is refused, for this reason.
    #[error(transparent)]
    Refused(#[from] StoreError),
    /// The database has failed.
    #[error("{0}")]
    Broken(String),
}

pub(super) type Done<T> = Result<T, Failure>;

impl<'a> Tx<'a> {
    pub(super) fn new(conn: &'a Connection, effects: &'a mut Effects) -> Self {
        Self { conn, effects }
    }

    /// Runs a statement and returns how many rows it changed.
    pub(super) fn exec(&mut self, sql: &str, params: impl Params) -> Done<usize> {
        self.effects.statements += 1;
        Ok(self.conn.prepare_cached(sql)?.execute(params)?)
    }

    /// The first row of a query, or of a statement with `RETURNING`.
    pub(super) fn row<T>(
        &mut self,
        sql: &str,
        params: impl Params,
        read: impl Fn(&Row<'_>) -> Done<T>,
    ) -> Done<Option<T>> {
        self.effects.statements += 1;
        row(self.conn, sql, params, read)
    }

    /// All rows of a query.
    pub(super) fn rows<T>(
        &mut self,
        sql: &str,
        params: impl Params,
        read: impl Fn(&Row<'_>) -> Done<T>,
    ) -> Done<Vec<T>> {
        self.effects.statements += 1;
        rows(self.conn, sql, params, read)
    }

    /// All rows of a query, with the damaged ones apart. `name`: the column that identifies a row.
    pub(super) fn sift<T>(
        &mut self,
        sql: &str,
        params: impl Params,
        name: &str,
        read: impl Fn(&Row<'_>) -> Done<T>,
    ) -> Done<Sifted<T>> {
        self.effects.statements += 1;
        sift(self.conn, sql, params, name, read)
    }

    /// A read by a function that readers use too. It counts as one statement.
    pub(super) fn read<T>(&mut self, read: impl FnOnce(&Connection) -> Done<T>) -> Done<T> {
        self.effects.statements += 1;
        read(self.conn)
    }

    /// The row id of the last insert.
    pub(super) fn last_insert(&self) -> u64 {
        from_sql_int(self.conn.last_insert_rowid())
    }
}

/// The first row of a query.
pub(super) fn row<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    read: impl Fn(&Row<'_>) -> Done<T>,
) -> Done<Option<T>> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    rows.next()?.map(read).transpose()
}

/// All rows of a query.
pub(super) fn rows<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    read: impl Fn(&Row<'_>) -> Done<T>,
) -> Done<Vec<T>> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

/// A count as a value of SQLite. A count above 63 bits becomes the maximum.
pub(super) fn to_sql_int(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// A count from SQLite. These columns never contain negative values.
pub(super) fn from_sql_int(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

impl Failure {
    /// The failure for a value that this program never writes.
    pub(super) fn damaged(what: &str) -> Self {
        Self::Broken(format!("damaged: {what}"))
    }

    /// The error for the caller.
    pub(super) fn into_store_error(self) -> StoreError {
        match self {
            Self::Refused(error) => error,
            Self::Broken(detail) => StoreError::Unavailable(detail),
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Broken(error.to_string())
    }
}
