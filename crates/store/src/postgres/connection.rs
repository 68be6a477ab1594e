//! A connection for one thread, which waits for each answer, or sends statements one after the other without waiting.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::TryStreamExt;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, Row, Statement};

use super::connect::{self, Limits};
use super::dialect::translate;
use super::fault::{Cause, Ended, PgError};
use super::params::{Bound, type_of};
use super::statements::Statements;
use super::url::PostgresUrl;
use super::wire::Wire;
use crate::value::Param;

/// The maximum number of statements that were sent and are not answered. Beyond it, [`PgConnection::post`] waits for all
/// answers.
const POSTED_MAX: usize = 256;

/// The maximum size of their parameters, in bytes. Beyond it, [`PgConnection::post`] waits for all answers.
const POSTED_BYTES_MAX: usize = 1024 * 1024;

/// The time for an answer beyond the limit of a statement: the server cancels the statement first.
const ANSWER_GRACE: Duration = Duration::from_secs(5);

/// The slowest transfer to the server, in bytes for each second. The server counts the time in which large parameters
/// arrive as a pause of the transaction.
const SLOWEST: usize = 1024 * 1024;

/// The longest time for the transfer of parameters.
const TRANSFER_MAX: Duration = Duration::from_secs(60);

/// The time in which parameters of this size arrive, if they are large.
fn transfer(bytes: usize) -> Duration {
    Duration::from_secs((bytes / SLOWEST) as u64).min(TRANSFER_MAX)
}

/// The answer of a posted statement.
enum Answer {
    /// Nobody needs it.
    Unused,
    /// The largest number of the rows of an insert.
    Number(Option<i64>),
    /// The rows of the query with this number.
    Rows(u64, Vec<Row>),
}

/// A posted statement.
type Posted = Pin<Box<dyn Future<Output = Result<Answer, tokio_postgres::Error>> + Send>>;

/// A connection to PostgreSQL. One thread owns it. All its methods wait for the server, except where they say otherwise,
/// and panic in a thread that runs asynchronous tasks. It is dropped in its thread, too.
pub(crate) struct PgConnection {
    runtime: Runtime,
    client: Arc<Client>,
    wire: Wire,
    statements: Statements,
    /// Statements that were sent and are not answered yet, in order.
    posted: Vec<Posted>,
    /// The size of their parameters, in bytes.
    posted_bytes: usize,
    /// The first failure of a posted statement that nobody has heard of.
    failed: Option<PgError>,
    /// The largest number that a posted insert of the transaction has got.
    newest: Option<i64>,
    /// The number of the last query of [`ask`](Self::ask).
    asked: u64,
    /// The rows of such queries of the transaction that nobody has read.
    answers: Vec<(u64, Vec<Row>)>,
    transaction: Transaction,
    /// The time for each answer.
    limit: Duration,
    /// The longest pause of a transaction.
    idle: Duration,
    /// The pause beyond [`idle`](Self::idle) that was set for this transaction; `None`: none was set.
    pause: Option<Duration>,
    /// The least pause beyond [`idle`](Self::idle) of this transaction.
    least_pause: Duration,
    /// Deadlocks in which the server has ended a transaction.
    deadlocks: Arc<AtomicU64>,
}

/// The state of the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transaction {
    None,
    Open,
    /// A statement has failed. The server would answer a commit with a rollback, and would report no error.
    Aborted,
}

impl PgConnection {
    /// Connects to the first server that accepts writes. `name`: the application, as `pg_stat_activity` shows it.
    ///
    /// # Errors
    /// No server accepts the connection. The failure is that of the server that came furthest.
    pub(crate) fn connect(url: &PostgresUrl, limits: &Limits, name: &str) -> Result<Self, PgError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| PgError::new(Cause::Other, Ended::Connection, error.to_string()))?;
        let (client, connection) = runtime.block_on(connect::first(url, name))?;
        let mut connected = Self {
            runtime,
            client: Arc::new(client),
            wire: Wire::new(connection),
            statements: Statements::default(),
            posted: Vec::new(),
            posted_bytes: 0,
            failed: None,
            newest: None,
            asked: 0,
            answers: Vec::new(),
            transaction: Transaction::None,
            limit: limits.statement + ANSWER_GRACE,
            idle: limits.idle,
            pause: None,
            least_pause: Duration::ZERO,
            deadlocks: Arc::default(),
        };
        let facts = connected.query(&connect::facts(), &[], &[])?;
        if let Err(error) = connect::check(facts.first()) {
            if error.cause() == Cause::Pooler {
                connected.batch(&connect::report_shared())?;
            }
            return Err(error);
        }
        connected.batch(&connect::session(url, limits))?;
        Ok(connected)
    }

    /// The same connection, which counts its deadlocks here from now on.
    pub(crate) fn counting(self, deadlocks: Arc<AtomicU64>) -> Self {
        Self { deadlocks, ..self }
    }

    /// All rows of a statement.
    ///
    /// # Errors
    /// The statement, or one that was posted before it, has failed. A transaction is aborted then.
    pub(crate) fn query(
        &mut self,
        sql: &str,
        names: &[&'static str],
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, PgError> {
        let statement = self.prepared(sql, names, params)?;
        self.count(params);
        let client = Arc::clone(&self.client);
        let bound: Vec<Bound<'_>> = params.iter().map(Bound::new).collect();
        let rows = async move { client.query_raw(&statement, bound).await?.try_collect().await };
        self.wait(rows)
    }

    /// Runs a statement, and returns the number of rows that it has changed.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    pub(crate) fn execute(&mut self, sql: &str, names: &[&'static str], params: &[Param<'_>]) -> Result<u64, PgError> {
        let statement = self.prepared(sql, names, params)?;
        self.count(params);
        let client = Arc::clone(&self.client);
        let bound: Vec<Bound<'_>> = params.iter().map(Bound::new).collect();
        self.wait(async move { client.execute_raw(&statement, bound).await })
    }

    /// Sends a statement of a transaction whose result nobody needs. It reaches the server with the next call that waits,
    /// in one packet with it, and waits itself only if the statement is new or if much has been posted.
    ///
    /// # Errors
    /// An earlier statement has failed, or the statement cannot be prepared. Its own failure is returned by the next call
    /// that waits.
    pub(crate) fn post(&mut self, sql: &str, names: &[&'static str], params: &[Param<'_>]) -> Result<(), PgError> {
        self.post_as(sql, names, params, |client, statement, bound| {
            Box::pin(async move { client.execute_raw(&statement, bound).await.map(|_| Answer::Unused) })
        })
    }

    /// Like [`post`](Self::post), for a statement that returns the number of each of its rows in its first column.
    /// [`commit`](Self::commit) returns the largest number.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub(crate) fn post_insert(
        &mut self,
        sql: &str,
        names: &[&'static str],
        params: &[Param<'_>],
    ) -> Result<(), PgError> {
        self.post_as(sql, names, params, |client, statement, bound| {
            Box::pin(async move {
                let rows: Vec<Row> = client.query_raw(&statement, bound).await?.try_collect().await?;
                let numbers = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
                Ok(Answer::Number(numbers.into_iter().max()))
            })
        })
    }

    /// Sends a query of a transaction, whose rows are read later: see [`answer`](Self::answer). Like [`post`](Self::post)
    /// otherwise. Returns the number of the query.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub(crate) fn ask(&mut self, sql: &str, names: &[&'static str], params: &[Param<'_>]) -> Result<u64, PgError> {
        self.asked += 1;
        let number = self.asked;
        self.post_as(sql, names, params, move |client, statement, bound| {
            Box::pin(async move {
                let rows = client.query_raw(&statement, bound).await?.try_collect().await?;
                Ok(Answer::Rows(number, rows))
            })
        })?;
        Ok(number)
    }

    /// The rows of a query of [`ask`](Self::ask) of this transaction, once. It waits only if the answer has not arrived.
    ///
    /// # Errors
    /// The query, or another posted statement, has failed; or the transaction has ended since.
    pub(crate) fn answer(&mut self, number: u64) -> Result<Vec<Row>, PgError> {
        if !self.has_answer(number) {
            self.settle()?;
        }
        let at = self.answers.iter().position(|(known, _)| *known == number);
        let (_, rows) = at
            .map(|at| self.answers.swap_remove(at))
            .ok_or_else(|| PgError::new(Cause::Other, Ended::Nothing, "the query belongs to another transaction"))?;
        Ok(rows)
    }

    /// Whether the rows of a query of [`ask`](Self::ask) have arrived.
    pub(crate) fn has_answer(&self, number: u64) -> bool {
        self.answers.iter().any(|(known, _)| *known == number)
    }

    fn post_as(
        &mut self,
        sql: &str,
        names: &[&'static str],
        params: &[Param<'_>],
        request: impl FnOnce(Arc<Client>, Statement, Vec<Bound<'static>>) -> Posted,
    ) -> Result<(), PgError> {
        if self.transaction == Transaction::None {
            // Without a transaction, statements after a failed one would be executed.
            return Err(PgError::new(Cause::Other, Ended::Nothing, "a statement was posted outside a transaction"));
        }
        let statement = self.prepared(sql, names, params)?;
        self.count(params);
        let client = Arc::clone(&self.client);
        let bound: Vec<Bound<'static>> = params.iter().map(Bound::copy).collect();
        self.send(request(client, statement, bound));
        if self.posted.len() >= POSTED_MAX || self.posted_bytes >= POSTED_BYTES_MAX {
            self.settle()?;
        }
        Ok(())
    }

    /// Waits for the answers of all posted statements.
    ///
    /// # Errors
    /// The first failure of them.
    pub(crate) fn settle(&mut self) -> Result<(), PgError> {
        self.wait(async { Ok(()) })
    }

    /// Runs statements without parameters in the dialect of PostgreSQL. None of them begins or ends a transaction.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    pub(crate) fn batch(&mut self, sql: &str) -> Result<(), PgError> {
        let (client, sql) = (Arc::clone(&self.client), sql.to_owned());
        self.wait(async move { client.batch_execute(&sql).await })
    }

    /// Begins a transaction. It does not wait: the command is sent with the first statement.
    ///
    /// # Errors
    /// A transaction is open.
    pub(crate) fn begin(&mut self) -> Result<(), PgError> {
        self.begin_with("BEGIN".to_owned())
    }

    /// The same, with another longest wait for a lock.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub(crate) fn begin_waiting(&mut self, lock: Duration) -> Result<(), PgError> {
        self.begin_with(format!("BEGIN; {}", lock_timeout(lock)))
    }

    fn begin_with(&mut self, command: String) -> Result<(), PgError> {
        if self.transaction != Transaction::None {
            return Err(PgError::new(Cause::Other, Ended::Nothing, "a transaction is open already"));
        }
        self.transaction = Transaction::Open;
        (self.pause, self.least_pause) = (None, Duration::ZERO);
        self.newest = None;
        self.answers.clear();
        self.send_command(command);
        Ok(())
    }

    /// Sets the longest wait for a lock of the open transaction, from the next statement on. It does not wait.
    pub(crate) fn wait_for_locks(&mut self, lock: Duration) {
        if self.transaction == Transaction::Open {
            self.send_command(lock_timeout(lock));
        }
    }

    /// Sends statements without parameters, and does not wait.
    fn send_command(&mut self, command: String) {
        let client = Arc::clone(&self.client);
        self.send(Box::pin(async move { client.batch_execute(&command).await.map(|()| Answer::Unused) }));
    }

    /// Commits the transaction. The command is sent together with the posted statements: if one of them fails, the server
    /// rolls the transaction back instead, and reports no failure of the command. This returns that of the statement. Returns
    /// the largest number that [`post_insert`](Self::post_insert) has got.
    ///
    /// # Errors
    /// It is not committed, except if [`PgError::may_be_committed`] says that nobody knows. There is no open transaction
    /// then.
    pub(crate) fn commit(&mut self) -> Result<Option<i64>, PgError> {
        match self.transaction {
            Transaction::None => Err(PgError::new(Cause::Other, Ended::Nothing, "no transaction is open")),
            Transaction::Aborted => {
                let failed = self.failed.take();
                self.rollback()?;
                let aborted = || PgError::new(Cause::Aborted, Ended::Transaction, "the transaction was rolled back");
                Err(failed.unwrap_or_else(aborted))
            }
            Transaction::Open => {
                let committed = self.batch("COMMIT").map_err(PgError::of_commit);
                self.transaction = Transaction::None;
                committed.map(|()| self.newest.take())
            }
        }
    }

    /// Rolls the transaction back. Failures of posted statements are forgotten.
    ///
    /// # Errors
    /// The connection is lost, and the transaction with it.
    pub(crate) fn rollback(&mut self) -> Result<(), PgError> {
        let _ = self.settle(); // what has failed is rolled back
        if self.transaction == Transaction::None {
            return Ok(());
        }
        let rolled_back = self.batch("ROLLBACK");
        self.transaction = Transaction::None;
        rolled_back
    }

    /// Sets a savepoint. It does not wait.
    ///
    /// # Errors
    /// An earlier statement of the transaction has failed.
    pub(crate) fn savepoint(&mut self) -> Result<(), PgError> {
        self.post("SAVEPOINT job", &[], &[])
    }

    /// Rolls back to the savepoint, and releases it. The transaction is open afterwards. Failures of posted statements are
    /// forgotten.
    ///
    /// # Errors
    /// The savepoint could not be set, or the connection is lost.
    pub(crate) fn rollback_to_savepoint(&mut self) -> Result<(), PgError> {
        let _ = self.settle(); // what has failed is rolled back
        self.pause = self.pause.map(|_| Duration::MAX); // that of the time of the savepoint, which is not known here
        self.batch("ROLLBACK TO SAVEPOINT job; RELEASE SAVEPOINT job")?;
        if self.transaction == Transaction::Aborted {
            self.transaction = Transaction::Open;
        }
        Ok(())
    }

    /// Releases the savepoint. It does not wait.
    ///
    /// # Errors
    /// An earlier statement of the transaction has failed.
    pub(crate) fn release_savepoint(&mut self) -> Result<(), PgError> {
        self.post("RELEASE SAVEPOINT job", &[], &[])
    }

    /// Lets the open transaction pause for longer from the next statement on, for what the caller computes between two
    /// statements. It sends nothing.
    pub(crate) fn may_pause(&mut self, beyond: Duration) {
        self.least_pause = beyond;
    }

    /// Whether the connection is lost. All further calls fail.
    pub(crate) fn is_broken(&self) -> bool {
        self.wire.is_broken() || self.client.is_closed()
    }

    /// Sets the time for each further answer, such as for a migration. Returns the time before.
    pub(crate) fn set_answer_limit(&mut self, limit: Duration) -> Duration {
        std::mem::replace(&mut self.limit, limit)
    }

    /// The number of prepared statements.
    #[cfg(test)]
    pub(crate) fn prepared_statements(&self) -> usize {
        self.statements.count()
    }

    /// The number of statements that were sent and are not answered.
    #[cfg(test)]
    pub(super) fn posted(&self) -> usize {
        self.posted.len()
    }

    /// The prepared statement, translated and prepared now if it is new.
    fn prepared(&mut self, sql: &str, names: &[&'static str], params: &[Param<'_>]) -> Result<Statement, PgError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if let Some(known) = self.statements.get(sql, names, params) {
            return Ok(known);
        }
        let text = translate(sql, names).map_err(|problem| PgError::new(Cause::Other, Ended::Nothing, problem))?;
        let types: Vec<_> = params.iter().map(|param| type_of(param.kind())).collect();
        let client = Arc::clone(&self.client);
        let statement = self.wait(async move { client.prepare_typed(&text, &types).await })?;
        self.statements.keep(sql, names, params, &statement);
        Ok(statement)
    }

    /// Counts the size of parameters that are sent now. While large ones arrive, the transaction may pause for longer: until
    /// the next statement after their answer.
    fn count(&mut self, params: &[Param<'_>]) {
        self.posted_bytes += params.iter().map(size).sum::<usize>();
        let pause = transfer(self.posted_bytes).max(self.least_pause);
        if pause == self.pause.unwrap_or_default() || self.transaction != Transaction::Open {
            return;
        }
        self.pause = Some(pause);
        let idle = (self.idle + pause).as_millis();
        self.send_command(format!("SET LOCAL idle_in_transaction_session_timeout = {idle}"));
    }

    /// Hands a statement to the client without waiting.
    fn send(&mut self, mut posted: Posted) {
        match self.runtime.block_on(poll_fn(|cx| Poll::Ready(posted.as_mut().poll(cx)))) {
            Poll::Pending => self.posted.push(posted),
            Poll::Ready(done) => self.note(Ok(done)),
        }
    }

    /// Sends a request, and waits for the answers of the posted statements and for its own.
    fn wait<T>(
        &mut self,
        request: impl Future<Output = Result<T, tokio_postgres::Error>> + Send,
    ) -> Result<T, PgError> {
        let posted = std::mem::take(&mut self.posted);
        let limit = self.limit + transfer(std::mem::take(&mut self.posted_bytes));
        let wire = &mut self.wire;
        let (earlier, own) = self.runtime.block_on(async {
            let mut request = std::pin::pin!(request);
            // The first poll hands the request to the client: it is sent together with the posted ones.
            let mut own = poll_fn(|cx| Poll::Ready(request.as_mut().poll(cx))).await.map(Ok);
            let mut earlier = Vec::new();
            for mut answer in posted {
                earlier.push(wire.answer(answer.as_mut(), limit).await);
            }
            if own.is_pending() {
                own = Poll::Ready(wire.answer(request, limit).await);
            }
            (earlier, own)
        });
        for answer in earlier {
            self.note(answer);
        }
        let own = match own {
            Poll::Ready(answer) => answer.and_then(|done| self.outcome(done)),
            Poll::Pending => Err(PgError::new(Cause::Lost, Ended::Connection, "")),
        };
        match self.failed.take() {
            Some(first) => Err(first),
            None => own,
        }
    }

    /// Keeps the answer or the failure of a posted statement.
    fn note(&mut self, answer: Result<Result<Answer, tokio_postgres::Error>, PgError>) {
        match answer.and_then(|done| self.outcome(done)) {
            Ok(Answer::Unused) => {}
            Ok(Answer::Number(number)) => self.newest = self.newest.max(number),
            Ok(Answer::Rows(number, rows)) => self.answers.push((number, rows)),
            Err(error) => _ = self.failed.get_or_insert(error),
        }
    }

    /// The result of a statement, for the caller. A failure aborts the transaction.
    fn outcome<T>(&mut self, done: Result<T, tokio_postgres::Error>) -> Result<T, PgError> {
        done.map_err(|error| {
            let error = self.wire.reason(PgError::from_client(&error));
            self.deadlocks.fetch_add(u64::from(error.is_deadlock()), Ordering::Relaxed);
            match error.ended() {
                Ended::Connection => self.wire.close(error.clone()),
                // A statement that was not sent leaves a hole in its job too.
                Ended::Transaction | Ended::Nothing if self.transaction == Transaction::Open => {
                    self.transaction = Transaction::Aborted;
                }
                Ended::Transaction | Ended::Nothing => {}
            }
            error
        })
    }
}

/// Sets the longest wait for a lock until the end of the transaction. Less than a millisecond would be no limit.
fn lock_timeout(lock: Duration) -> String {
    format!("SET LOCAL lock_timeout = {}", lock.as_millis().max(1))
}

/// The size of a parameter, in bytes.
fn size(param: &Param<'_>) -> usize {
    match param {
        Param::Null(_) => 0,
        Param::Int(_) | Param::Real(_) => 8,
        Param::Text(text) => text.len(),
        Param::Blob(bytes) => bytes.len(),
        Param::Id(_) => 16,
    }
}
