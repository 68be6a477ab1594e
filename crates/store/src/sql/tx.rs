//! The transaction in which jobs write, and the failures of a job.

use std::time::Duration;

use belay_protocol::{RunId, StoreError};

use super::connection::{Asked, Connection, Engine, Read, Row};
use super::damaged::{Sifted, sift};
use crate::value::{Params, Value, params};

pub(super) use super::connection::{Done, Failure};

/// The open transaction, as one job sees it.
///
/// A job that fails is rolled back as a whole. So the statements on a message's path that write more than one row, or
/// return one, say `OR FAIL`: with the default, SQLite copies every page that they change first, to undo the statement alone.
pub(super) struct Tx<'a> {
    conn: &'a Connection,
    pub(super) effects: &'a mut Effects,
}

/// The effects of a transaction that are signalled after its commit.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Events that are written at the end of the transaction: the values of their columns.
    pub(super) events: Vec<Value>,
    /// The number of the last event.
    pub(super) last_event: Option<u64>,
    /// Whether there are new rows in the outbox.
    pub(super) outbox: bool,
    /// Statements executed, without those of `indexing`.
    pub(super) statements: u64,
    /// Statements that indexed events behind the reply.
    pub(super) indexing: u64,
    /// The subjects that the transaction has locked.
    pub(super) subjects: Subjects,
}

/// The subjects of [`Tx::exclusive`] in a transaction. Its jobs lock them in ascending order: two writers that lock several
/// then never wait for each other.
#[derive(Debug, Default)]
pub(super) struct Subjects {
    /// The last subject of the jobs before this one; `None`: no job comes before.
    before: Option<String>,
    /// The last subject of this job.
    own: String,
}

impl Subjects {
    /// Begins another job.
    pub(super) fn begin_job(&mut self, is_first: bool) {
        let last = std::mem::take(&mut self.own).max(self.before.take().unwrap_or_default());
        self.before = (!is_first).then_some(last);
    }

    /// # Errors
    /// [`Failure::OutOfOrder`]: an earlier job has locked a later subject.
    fn add(&mut self, subject: &str) -> Done<()> {
        if self.before.as_deref().is_some_and(|before| subject < before) {
            return Err(Failure::OutOfOrder);
        }
        if subject > self.own.as_str() {
            subject.clone_into(&mut self.own);
        }
        Ok(())
    }
}

/// A state of the effects, before a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    events: usize,
    last_event: Option<u64>,
    outbox: bool,
    statements: u64,
    indexing: u64,
}

impl Effects {
    /// The state now.
    pub(super) fn mark(&self) -> Mark {
        let Self { events, last_event, outbox, statements, indexing, .. } = self;
        Mark {
            events: events.len(),
            last_event: *last_event,
            outbox: *outbox,
            statements: *statements,
            indexing: *indexing,
        }
    }

    /// Takes the events that were put off since an earlier state.
    pub(super) fn events_since(&mut self, mark: Mark) -> Vec<Value> {
        self.events.split_off(mark.events.min(self.events.len()))
    }

    /// Returns to an earlier state, after a job was rolled back.
    pub(super) fn return_to(&mut self, mark: Mark) {
        let Mark { events, last_event, outbox, statements, indexing } = mark;
        self.events.truncate(events);
        (self.last_event, self.outbox) = (last_event, outbox);
        (self.statements, self.indexing) = (statements, indexing);
    }
}

impl<'a> Tx<'a> {
    pub(super) fn new(conn: &'a Connection, effects: &'a mut Effects) -> Self {
        Self { conn, effects }
    }

    /// Runs a statement and returns how many rows it changed.
    pub(super) fn exec(&mut self, sql: &str, params: impl Params) -> Done<usize> {
        self.effects.statements += 1;
        self.conn.execute(sql, params)
    }

    /// Runs a statement whose result nobody needs. Its failure fails the job, but a later statement may return it.
    pub(super) fn post(&mut self, sql: &str, params: impl Params) -> Done<()> {
        self.effects.statements += 1;
        self.conn.post(sql, params)
    }

    /// The first row of a query, which no other writer can change until the commit. `table`: the row's table, or its
    /// alias. SQLite has one writer, and locks nothing.
    pub(super) fn locked<T>(
        &mut self,
        sql: &str,
        table: &str,
        params: impl Params,
        read: impl Fn(&Row<'_>) -> Done<T>,
    ) -> Done<Option<T>> {
        match self.engine() {
            Engine::Sqlite => self.row(sql, params, read),
            Engine::Postgres => self.row(&format!("{sql} FOR UPDATE OF {table}"), params, read),
        }
    }

    /// Sends a query whose first row is read later by [`answer`](Self::answer). PostgreSQL gets it together with the next
    /// statement that waits.
    pub(super) fn ask<T>(&mut self, sql: &str, params: impl Params, read: Read<T>) -> Done<Asked<T>> {
        self.effects.statements += 1;
        self.conn.ask(sql, params, read)
    }

    /// The first row of such a query.
    pub(super) fn answer<T>(&self, asked: Asked<T>) -> Done<Option<T>> {
        self.conn.answer(asked)
    }

    /// Waits until no other writer is between this call for the same subject and its commit. For checks that read more
    /// rows than they could lock, such as a count. SQLite has one writer, and does nothing.
    ///
    /// # Errors
    /// [`Failure::OutOfOrder`]: the writer repeats the job in the next transaction.
    pub(super) fn exclusive(&mut self, subject: &str) -> Done<()> {
        if self.engine() == Engine::Postgres {
            self.effects.subjects.add(subject)?;
        }
        self.lock(subject)
    }

    /// The same for a subject that comes after all others.
    pub(super) fn lock(&mut self, subject: &str) -> Done<()> {
        match self.engine() {
            Engine::Sqlite => Ok(()),
            Engine::Postgres => self.post(
                "SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' ' || ?1, 0))",
                params![subject],
            ),
        }
    }

    /// As [`exclusive`](Self::exclusive), without waiting: returns whether no other writer is there.
    pub(super) fn try_exclusive(&mut self, subject: &str) -> Done<bool> {
        let lock = "SELECT pg_try_advisory_xact_lock(hashtextextended(current_schema() || ' ' || ?1, 0)) AS free";
        match self.engine() {
            Engine::Sqlite => Ok(true),
            Engine::Postgres => Ok(self.row(lock, params![subject], |row| row.get::<_, bool>("free"))? == Some(true)),
        }
    }

    /// Has the job be the first one of its transaction. Called before the job locks a row whose holder may wait for rows that
    /// earlier jobs have locked.
    ///
    /// # Errors
    /// [`Failure::OutOfOrder`]: as for [`exclusive`](Self::exclusive).
    pub(super) fn first(&self) -> Done<()> {
        if self.engine() == Engine::Postgres && self.effects.subjects.before.is_some() {
            return Err(Failure::OutOfOrder);
        }
        Ok(())
    }

    /// Lets the transaction pause for longer, for what is computed between two statements: see [`Connection::may_pause`].
    pub(super) fn may_pause(&self, beyond: Duration) {
        self.conn.may_pause(beyond);
    }

    /// See [`Connection::node`].
    pub(super) fn node(&self) -> Vec<u8> {
        self.conn.node()
    }

    /// The engine.
    pub(super) fn engine(&self) -> Engine {
        self.conn.engine()
    }

    /// Inserts rows and returns the number of the last one, which the database has chosen. `column`: where it is.
    pub(super) fn insert(&mut self, sql: &str, params: impl Params, column: &str) -> Done<u64> {
        self.effects.statements += 1;
        self.conn.insert(sql, params, column)
    }

    /// Like [`insert`](Self::insert), but PostgreSQL returns the number with the commit.
    pub(super) fn post_insert(&mut self, sql: &str, params: impl Params, column: &str) -> Done<Option<u64>> {
        self.effects.statements += 1;
        self.conn.post_insert(sql, params, column)
    }

    /// The first row of a query, or of a statement with `RETURNING`.
    pub(super) fn row<T>(
        &mut self,
        sql: &str,
        params: impl Params,
        read: impl Fn(&Row<'_>) -> Done<T>,
    ) -> Done<Option<T>> {
        self.effects.statements += 1;
        self.conn.row(sql, params, read)
    }

    /// All rows of a query.
    pub(super) fn rows<T>(
        &mut self,
        sql: &str,
        params: impl Params,
        read: impl Fn(&Row<'_>) -> Done<T>,
    ) -> Done<Vec<T>> {
        self.effects.statements += 1;
        self.conn.rows(sql, params, read)
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
}

/// The first row of a query.
pub(super) fn row<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    read: impl Fn(&Row<'_>) -> Done<T>,
) -> Done<Option<T>> {
    conn.row(sql, params, read)
}

/// All rows of a query.
pub(super) fn rows<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    read: impl Fn(&Row<'_>) -> Done<T>,
) -> Done<Vec<T>> {
    conn.rows(sql, params, read)
}

/// A count as a number of a database. A count above 63 bits becomes the maximum.
pub(super) fn to_sql_int(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// A count from a database. These columns never contain negative values.
pub(super) fn from_sql_int(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

/// The error for a row that does not exist. `what`: its kind.
pub(super) fn not_found(what: &str, run: RunId) -> Failure {
    StoreError::NotFound(format!("{what} {run}")).into()
}
