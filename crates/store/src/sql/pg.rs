//! A connection to PostgreSQL that is opened anew when it is lost, and that knows whether its last commit was done.
//!
//! A lost connection leaves it open whether a commit under way was done. So each transaction that writes also counts in
//! the row of its writer. After the connection is back, the count tells.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use belay_protocol::{BootId, UnixMillis};
use uuid::Uuid;

use super::PostgresLimits;
use super::connection::{Done, Failure};
use super::outcome::{Begun, Committed, lost};
use crate::error::OpenError;
use crate::limits::id_before;
use crate::postgres::{
    Cause, HISTORY_LOST, History, IDLE, IDLE_OF_WRITER, Limits, Opening, PgConnection, PgError, PgRow, PostgresUrl,
    WRITER_LOCK, check_schema_again, open_schema, value,
};
use crate::unfinished::Unfinished;
use crate::value::{Params, ValueRef, params};

/// The time in which a lost commit is clarified before its callers get an error.
const CLARIFY: Duration = Duration::from_secs(5);

/// The pause between two attempts to connect. Statements in between fail at once.
const RECONNECT: Duration = Duration::from_millis(500);

/// How long the count of a writer is kept: 30 days, longer than a daemon waits for its database.
const WRITERS_KEPT: Duration = Duration::from_secs(30 * 86_400);

/// The time in which a new daemon waits for the end of one that writes. A daemon that was killed is gone within moments.
const HAND_OVER: Duration = Duration::from_secs(2);

/// The time for which a transaction of the connection that writes waits for a lock, except for its last one. It is below the
/// second after which PostgreSQL looks for a deadlock (`deadlock_timeout`): transactions that wait for each other end
/// before, and are repeated.
const LOCK_WAIT: Duration = Duration::from_millis(300);

/// Tries to take the lock of the connection that writes. `shared`: `_shared`, or nothing for a daemon that is alone.
fn try_lock(shared: &str) -> String {
    format!("SELECT CASE WHEN pg_try_advisory_lock{shared}({WRITER_LOCK}) THEN 1 ELSE 0 END")
}

/// Ends other connections that hold the lock, and that this opening of the store has made (?1: their application; {lock}: its number).
const END_EARLIER: &str = "SELECT CASE WHEN pg_terminate_backend(a.pid, 5000) THEN 1 ELSE 0 END
     FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
     WHERE l.locktype = 'advisory' AND l.granted AND a.application_name = ?1 AND a.pid <> pg_backend_pid()
       AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND l.objsubid = 1
       AND (CAST(l.classid AS BIGINT) << 32) | CAST(l.objid AS BIGINT) = {lock}";

impl PostgresLimits {
    /// The limits of statements.
    pub(crate) fn of_statements(&self) -> Limits {
        Limits { statement: self.statement, lock: self.lock, idle: IDLE }
    }
}

/// What connections of a store share.
pub(crate) struct PgSettings {
    url: PostgresUrl,
    limits: Limits,
    /// This opening of the store.
    boot: BootId,
    /// Whether no other daemon may write meanwhile. Several that share the database exclude only one that is exclusive.
    exclusive: bool,
    /// Round trips of all connections.
    round_trips: Arc<AtomicU64>,
    /// Once it is lost, there is no new connection and no transaction.
    history: Arc<History>,
}

impl PgSettings {
    /// The settings of one opening of the store. `beside`: the boot of a node that shares the database; `None`: the store is
    /// alone.
    pub(crate) fn new(url: PostgresUrl, limits: PostgresLimits, beside: Option<BootId>) -> Self {
        let (boot, exclusive) = (beside.unwrap_or_default(), beside.is_none());
        let history = Arc::new(History::new(boot));
        Self { url, limits: limits.of_statements(), boot, exclusive, round_trips: Arc::default(), history }
    }
}

impl PgSettings {
    /// Creates, migrates and checks the schema. A daemon that was killed may still use it for a moment.
    /// `exact`: that of a newer program is refused.
    fn open_schema(&self, conn: &mut PgConnection, exact: bool, unfinished: Unfinished) -> Result<(), OpenError> {
        let opening = Opening { exclusive: self.exclusive, exact, unfinished };
        let until = Instant::now() + HAND_OVER;
        loop {
            match open_schema(conn, self.url.schema(), opening) {
                Err(OpenError::Locked { .. }) if Instant::now() < until => std::thread::sleep(HAND_OVER / 20),
                opened => return opened.map(drop),
            }
        }
    }

    /// The counter of round trips.
    pub(crate) fn round_trips(&self) -> Arc<AtomicU64> {
        self.round_trips.clone()
    }

    /// Whether the database has what this opening of the store has seen committed.
    pub(crate) fn history(&self) -> Arc<History> {
        self.history.clone()
    }
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The one that writes.
    Writer,
    /// One of those that read.
    Reader,
    /// The one that reads everything for a migration, and excludes daemons. It is not opened anew when it is lost: a daemon
    /// may write in between.
    Source,
    /// The one that writes everything for a migration, and excludes daemons. It is not opened anew either.
    Target,
}

impl Role {
    /// The application, as `pg_stat_activity` shows it. That of the writer is the same for all connections of one opening
    /// of the store, and for no other one.
    fn application(self, boot: BootId) -> String {
        match self {
            Self::Writer => format!("belay write {}", boot.as_uuid().simple()),
            Self::Reader => "belay read".to_owned(),
            Self::Source => "belay migrate from".to_owned(),
            Self::Target => "belay migrate to".to_owned(),
        }
    }

    /// The limits of a connection. A daemon that is stopped inside a transaction must not block others for longer than
    /// necessary.
    fn limits(self, limits: &Limits) -> Limits {
        match self {
            Self::Writer => Limits { idle: IDLE_OF_WRITER, ..*limits },
            Self::Reader | Self::Source | Self::Target => *limits,
        }
    }
}

/// A connection of one thread.
pub(crate) struct PgSession {
    settings: Arc<PgSettings>,
    role: Role,
    conn: RefCell<Option<PgConnection>>,
    /// No attempt to connect before this time, and the failure of the last one.
    down: RefCell<Option<(Instant, String)>>,
    /// Changed rows so far.
    changes: Cell<u64>,
    /// The number of transactions that this writer has committed.
    commits: Cell<u64>,
    /// Whether the commit after these may have been done.
    unclear: Cell<bool>,
    in_transaction: Cell<bool>,
    /// Deadlocks in which the server has ended a transaction of this session.
    deadlocks: Arc<AtomicU64>,
}

impl PgSession {
    /// Connects. The connection that writes creates and checks the schema before, and excludes other daemons.
    ///
    /// # Errors
    /// The server does not accept the connection, the schema cannot be used, or another daemon uses it.
    pub(crate) fn open(settings: Arc<PgSettings>, role: Role) -> Result<Self, OpenError> {
        let application = role.application(settings.boot);
        let limits = role.limits(&settings.limits);
        let deadlocks = Arc::<AtomicU64>::default();
        let conn = PgConnection::connect(&settings.url, &limits, &application).map_err(refused)?;
        let mut conn = conn.counting(deadlocks.clone());
        match role {
            Role::Writer => settings.open_schema(&mut conn, false, Unfinished::Refuse)?,
            Role::Source => settings.open_schema(&mut conn, true, Unfinished::Refuse)?,
            Role::Target => settings.open_schema(&mut conn, true, Unfinished::Accept)?,
            Role::Reader => {}
        }
        let session = Self {
            settings,
            role,
            conn: RefCell::default(),
            down: RefCell::default(),
            changes: Cell::default(),
            commits: Cell::default(),
            unclear: Cell::default(),
            in_transaction: Cell::default(),
            deadlocks,
        };
        if role != Role::Reader {
            let until = Instant::now() + HAND_OVER;
            while !session.take_over(&mut conn).map_err(refused)? {
                if Instant::now() >= until {
                    return Err(OpenError::Locked { pid: None });
                }
                std::thread::sleep(HAND_OVER / 20);
            }
            if let Err(refusal) = session.refuse_shared_sessions() {
                // A pooler keeps the session, and would keep the lock with it.
                let _ = conn.batch("SELECT pg_advisory_unlock_all()"); // the refusal says more than a failure
                return Err(refusal);
            }
        }
        if role == Role::Writer {
            session.forget_old_writers(&mut conn).map_err(refused)?;
        }
        session.conn.replace(Some(conn));
        Ok(session)
    }

    /// Deletes the counts of writers that began long ago, except those of living nodes. Their ids begin with a date.
    fn forget_old_writers(&self, conn: &mut PgConnection) -> Result<(), PgError> {
        let Some(began) = self.settings.boot.as_uuid().get_timestamp() else { return Ok(()) };
        let oldest = began.to_unix().0.saturating_sub(WRITERS_KEPT.as_secs()).saturating_mul(1_000);
        let oldest = UnixMillis(i64::try_from(oldest).unwrap_or(0));
        let delete = "DELETE FROM writers WHERE boot < ?1
                      AND NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.boot = writers.boot AND ended_at IS NULL)";
        conn.execute(delete, &[], &params![id_before(oldest)]).map(|_| ())
    }

    /// Refuses a pooler that gives the session of one connection to another one: there, the lock excludes nobody.
    fn refuse_shared_sessions(&self) -> Result<(), OpenError> {
        let PgSettings { url, limits, .. } = &*self.settings;
        let mut second = PgConnection::connect(url, limits, Role::Reader.application(self.settings.boot).as_str())
            .map_err(refused)?;
        let free = second.query(&try_lock(""), &[], &[]).map_err(refused)?;
        match free.first().map(|row| value(row, 0)) {
            Some(Ok(ValueRef::Int(0))) => Ok(()),
            _ => {
                // The pooler keeps the session, and would keep the lock with it.
                let _ = second.batch("SELECT pg_advisory_unlock_all()"); // the refusal says more than a failure
                Err(refused(PgError::shared_session()))
            }
        }
    }

    /// Makes a new connection the one that writes. Returns whether no other daemon writes.
    ///
    /// The server may not have noticed yet that connections before are gone, with their lock and their transaction: their
    /// processes are ended. A pooler may have given such a process to somebody else, and then it has no lock.
    fn take_over(&self, conn: &mut PgConnection) -> Result<bool, PgError> {
        let own = self.role.application(self.settings.boot);
        let end = END_EARLIER.replace("{lock}", WRITER_LOCK);
        conn.query(&end, &[], &params![own])?;
        let shared = if self.settings.exclusive { "" } else { "_shared" };
        let rows = conn.query(&try_lock(shared), &[], &[])?;
        let Some(row) = rows.first() else { return Ok(false) };
        if value(row, 0)? != ValueRef::Int(1) {
            return Ok(false);
        }
        if self.role == Role::Source {
            return Ok(true); // it writes nothing
        }
        let found = self.count(conn)?;
        if found < self.commits.get() {
            let lost = self.commits.get() - found;
            tracing::error!(
                lost,
                "the database has lost committed transactions, as a standby that was behind does: this daemon ends itself"
            );
            let recorded = conn.batch(&self.settings.history.record(self.settings.url.schema(), lost));
            self.settings.history.lose(); // also if it is not recorded: nothing may be written on what is left
            recorded?;
        }
        Ok(true)
    }

    /// The number of transactions of this writer in the database.
    ///
    /// A row is written for it. So this waits for a transaction of a lost connection that has not ended yet, and for a
    /// synchronous standby, which may lack a transaction that the server shows already.
    fn count(&self, conn: &mut PgConnection) -> Result<u64, PgError> {
        let boot = self.settings.boot.as_uuid();
        let count = "INSERT INTO writers (boot, commits) VALUES (?1, 0)
                     ON CONFLICT (boot) DO UPDATE SET commits = writers.commits RETURNING commits";
        let rows = conn.query(count, &[], &params![boot])?;
        match rows.first().map(|row| value(row, 0)).transpose()? {
            Some(ValueRef::Int(found)) => Ok(u64::try_from(found).unwrap_or(0)),
            _ => Ok(0), // the statement returns a number in each case
        }
    }

    /// All rows of a statement.
    pub(crate) fn query(&self, sql: &str, params: &impl Params) -> Done<Vec<PgRow>> {
        self.settings.round_trips.fetch_add(1, Ordering::Relaxed);
        let rows = self.with(|conn| conn.query(sql, params.names(), params.values()))?;
        if !is_read(sql) {
            self.changes.set(self.changes.get() + rows.len() as u64);
        }
        Ok(rows)
    }

    /// Runs a statement, and returns the number of changed rows.
    pub(crate) fn execute(&self, sql: &str, params: &impl Params) -> Done<usize> {
        self.settings.round_trips.fetch_add(1, Ordering::Relaxed);
        let changed = self.with(|conn| conn.execute(sql, params.names(), params.values()))?;
        self.changes.set(self.changes.get() + changed);
        Ok(usize::try_from(changed).unwrap_or(usize::MAX))
    }

    /// Sends a statement whose result nobody needs. Its failure is returned by a later statement, or by the commit.
    pub(crate) fn post(&self, sql: &str, params: &impl Params) -> Done<()> {
        self.send(|conn| conn.post(sql, params.names(), params.values()))
    }

    /// Sends an insert that returns the numbers of its rows. [`commit`](Self::commit) returns the largest one.
    pub(crate) fn post_insert(&self, sql: &str, params: &impl Params) -> Done<()> {
        self.send(|conn| conn.post_insert(sql, params.names(), params.values()))
    }

    fn send(&self, post: impl FnOnce(&mut PgConnection) -> Result<(), PgError>) -> Done<()> {
        self.changes.set(self.changes.get() + 1);
        self.connected(post)
    }

    /// Sends a query that changes nothing. [`answer`](Self::answer) reads its rows by the number that this returns.
    pub(crate) fn ask(&self, sql: &str, params: &impl Params) -> Done<u64> {
        self.connected(|conn| conn.ask(sql, params.names(), params.values()))
    }

    /// The rows of a query of [`ask`](Self::ask).
    pub(crate) fn answer(&self, number: u64) -> Done<Vec<PgRow>> {
        self.connected(|conn| {
            let arrived = conn.has_answer(number);
            self.settings.round_trips.fetch_add(u64::from(!arrived), Ordering::Relaxed);
            conn.answer(number)
        })
    }

    /// Calls the connection of an open transaction.
    fn connected<T>(&self, call: impl FnOnce(&mut PgConnection) -> Result<T, PgError>) -> Done<T> {
        let mut conn = self.conn.borrow_mut();
        let conn = conn.as_mut().ok_or_else(lost)?;
        call(conn).map_err(|error| self.failure(&error))
    }

    /// Lets the open transaction pause for longer.
    pub(crate) fn may_pause(&self, beyond: Duration) {
        if let Some(conn) = self.conn.borrow_mut().as_mut() {
            conn.may_pause(beyond);
        }
    }

    /// The longest wait for a lock, over all repetitions of a transaction.
    pub(crate) fn lock_limit(&self) -> Duration {
        self.settings.limits.lock
    }

    /// Lets the open transaction wait for the locks of its further statements for so long, and at least as long as before.
    pub(crate) fn wait_for_locks(&self, limit: Duration) {
        if let Some(conn) = self.conn.borrow_mut().as_mut() {
            conn.wait_for_locks(limit.max(LOCK_WAIT.min(self.lock_limit())));
        }
    }

    /// This opening of the store.
    pub(crate) fn boot(&self) -> Uuid {
        self.settings.boot.as_uuid()
    }

    /// The counter of deadlocks in which the server has ended a transaction of this session.
    pub(crate) fn deadlocks(&self) -> Arc<AtomicU64> {
        self.deadlocks.clone()
    }

    /// The number of changed rows so far; a posted statement counts as one.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Whether a transaction is open.
    pub(crate) fn in_transaction(&self) -> bool {
        self.in_transaction.get()
    }

    /// Whether nobody knows whether the last transaction was committed.
    pub(crate) fn is_unclear(&self) -> bool {
        self.unclear.get()
    }

    /// Opens a transaction. Connects before, if the connection is lost.
    ///
    /// # Errors
    /// There is no connection, or the database has lost transactions that this opening of the store has seen.
    pub(crate) fn begin(&self) -> Done<Begun> {
        self.refuse_lost_history()?;
        let earlier = if self.unclear.get() { self.clarify()? } else { Committed::Lost };
        match self.role {
            Role::Writer => self.with(|conn| conn.begin_waiting(LOCK_WAIT.min(self.lock_limit())))?,
            Role::Reader | Role::Source | Role::Target => self.with(PgConnection::begin)?,
        }
        self.in_transaction.set(true);
        Ok(match earlier {
            Committed::Yes(newest) => Begun::EarlierCommitted(newest),
            Committed::Lost => Begun::New,
        })
    }

    /// Commits the transaction, and counts it. Posted statements, the count and the command are sent together. A transaction
    /// in which a statement has failed refuses the count, so that its end is never taken for a commit.
    ///
    /// # Errors
    /// It is not committed, or nobody knows: then the next [`begin`](Self::begin) tells.
    pub(crate) fn commit(&self) -> Done<Committed> {
        let count = self.commits.get() + 1;
        let sql = "UPDATE writers SET commits = ?2 WHERE boot = ?1";
        let counted = i64::try_from(count).unwrap_or(i64::MAX);
        let done = self.post(sql, &params![self.settings.boot.as_uuid(), counted]).and_then(|()| {
            let mut conn = self.conn.borrow_mut();
            let conn = conn.as_mut().ok_or_else(lost)?;
            self.settings.round_trips.fetch_add(1, Ordering::Relaxed);
            conn.commit().map_err(|error| {
                self.unclear.set(error.may_be_committed());
                self.failure(&error)
            })
        });
        self.in_transaction.set(false);
        match done {
            Ok(number) => {
                self.commits.set(count);
                Ok(Committed::Yes(number.and_then(|number| u64::try_from(number).ok())))
            }
            Err(failure) if self.unclear.get() => self.clarified().ok_or(failure),
            Err(failure) => {
                let _ = self.rollback(); // of a transaction that could not even be counted; the failure says more
                Err(failure)
            }
        }
    }

    /// Rolls the transaction back.
    pub(crate) fn rollback(&self) -> Done<()> {
        self.in_transaction.set(false);
        let mut conn = self.conn.borrow_mut();
        conn.as_mut().map_or(Ok(()), |conn| conn.rollback().map_err(|error| self.failure(&error)))
    }

    /// Sets a savepoint.
    pub(crate) fn savepoint(&self) -> Done<()> {
        self.with(PgConnection::savepoint)
    }

    /// Rolls back to the savepoint, and releases it.
    pub(crate) fn rollback_to_savepoint(&self) -> Done<()> {
        self.with(PgConnection::rollback_to_savepoint)
    }

    /// Waits for the statements since the savepoint, and releases it.
    pub(crate) fn release_savepoint(&self) -> Done<()> {
        self.with(|conn| conn.settle().and_then(|()| conn.release_savepoint()))
    }

    /// Whether the unclear commit was done. `None`: the database has not told within [`CLARIFY`].
    fn clarified(&self) -> Option<Committed> {
        let until = Instant::now() + CLARIFY;
        while Instant::now() < until {
            match self.clarify() {
                Ok(known) => return Some(known),
                Err(_) if self.settings.history.is_lost() => return None,
                Err(_) => std::thread::sleep(RECONNECT),
            }
        }
        None
    }

    /// Connects, and reads whether the unclear commit was done.
    fn clarify(&self) -> Done<Committed> {
        let found = self.with(|conn| self.count(conn))?;
        let committed = found > self.commits.get();
        let newest = if committed { self.with(newest_event)? } else { None };
        self.unclear.set(false);
        if !committed {
            return Ok(Committed::Lost);
        }
        self.commits.set(self.commits.get() + 1);
        Ok(Committed::Yes(newest))
    }

    /// Calls the connection. Outside a transaction a lost connection is opened anew first. A read is repeated if it finds
    /// that the connection was lost since the one before.
    fn with<T>(&self, mut call: impl FnMut(&mut PgConnection) -> Result<T, PgError>) -> Done<T> {
        let mut slot = self.conn.borrow_mut();
        let mut opened = false;
        loop {
            if slot.as_ref().is_none_or(PgConnection::is_broken) {
                *slot = None;
                if self.in_transaction.get() {
                    return Err(lost());
                }
                *slot = Some(self.connect()?);
                opened = true;
            }
            let conn = slot.as_mut().ok_or_else(lost)?;
            match call(conn) {
                Ok(done) => return Ok(done),
                Err(error) if self.role == Role::Reader && !opened && error.is_lost() => {}
                Err(error) => return Err(self.failure(&error)),
            }
        }
    }

    /// The failure for the job. Outside a transaction there is nothing to repeat.
    fn failure(&self, error: &PgError) -> Failure {
        match error.cause() {
            Cause::Constraint | Cause::Value => Failure::Rejected(error.to_string()),
            _ if error.is_contended() && self.in_transaction.get() => Failure::Contended(error.to_string()),
            _ => Failure::Broken(error.to_string()),
        }
    }

    /// Refuses everything once the history is lost: what is in memory does not agree with the database.
    fn refuse_lost_history(&self) -> Done<()> {
        if self.settings.history.is_lost() { Err(Failure::Broken(HISTORY_LOST.into())) } else { Ok(()) }
    }

    /// Connects, unless the last attempt has failed a moment ago.
    fn connect(&self) -> Done<PgConnection> {
        if matches!(self.role, Role::Source | Role::Target) {
            return Err(lost());
        }
        self.refuse_lost_history()?;
        let mut down = self.down.borrow_mut();
        if let Some((next, words)) = &*down
            && Instant::now() < *next
        {
            return Err(Failure::Broken(words.clone()));
        }
        let application = self.role.application(self.settings.boot);
        let limits = self.role.limits(&self.settings.limits);
        let connected = PgConnection::connect(&self.settings.url, &limits, &application)
            .map(|conn| conn.counting(self.deadlocks.clone()));
        let connected = connected.map_err(|error| error.to_string()).and_then(|mut conn| match self.role {
            Role::Reader => Ok(conn),
            Role::Writer | Role::Source | Role::Target => match self.take_over(&mut conn) {
                Ok(true) if self.settings.history.is_lost() => Err(HISTORY_LOST.to_owned()),
                // A newer daemon may have migrated the schema since.
                Ok(true) => match check_schema_again(&mut conn, self.settings.url.schema()) {
                    Ok(()) => Ok(conn),
                    Err(error) => Err(error.to_string()),
                },
                Ok(false) => Err("another daemon writes into the database".to_owned()),
                Err(error) => Err(error.to_string()),
            },
        });
        match connected {
            Ok(conn) => {
                if down.take().is_some() {
                    tracing::info!(connection = application, "the database answers again");
                }
                Ok(conn)
            }
            Err(words) => {
                if down.is_none() {
                    tracing::error!(connection = application, error = words, "the database does not answer");
                }
                *down = Some((Instant::now() + RECONNECT, words.clone()));
                Err(Failure::Broken(words))
            }
        }
    }
}

/// The number of the newest event.
fn newest_event(conn: &mut PgConnection) -> Result<Option<u64>, PgError> {
    let rows = conn.query("SELECT MAX(seq) FROM events", &[], &[])?;
    match rows.first().map(|row| value(row, 0)).transpose()? {
        Some(ValueRef::Int(newest)) => Ok(u64::try_from(newest).ok()),
        _ => Ok(None), // there is no event
    }
}

/// Whether a statement only reads.
fn is_read(sql: &str) -> bool {
    let head = sql.trim_start();
    head.starts_with("SELECT") || head.starts_with("WITH")
}

fn refused(error: PgError) -> OpenError {
    OpenError::Database(Box::new(error))
}
