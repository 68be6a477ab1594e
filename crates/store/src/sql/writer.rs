//! The one thread that writes, and the group commit.
//!
//! Jobs that wait together share one transaction: they are executed in order of arrival, committed once, and answered.
//! Relaxed jobs are answered as soon as they have executed. The thread keeps them until their transaction is committed.
//! If the commit fails, it executes them again, before anything else. So the data on disk is always a prefix of the
//! jobs, and no answered job is lost while the process lives.
//!
//! A job is usually executed without a savepoint of its own. If a job fails after it has written (such as on a full
//! disk), the transaction is rolled back and its jobs are executed once more, each in a savepoint, so that only the
//! failing one is lost.
//!
//! The jobs of a transaction take named locks in one order, and the lock of the events comes last. A job whose locks come
//! before those of an earlier job is executed in the next transaction. Rows have no order: a transaction waits for them for
//! a moment only. If a lock is not free then, it is rolled back, so that its own locks are free, and its jobs are executed
//! again, each in a transaction of its own.

mod one_by_one;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use belay_crash_point::crash_point;
use belay_protocol::{Durability, Seq, StoreError};
use tokio::sync::{oneshot, watch};
use tracing::{debug, error, info, warn};

use super::connection::{Connection, Engine};
use super::index;
use super::ledger;
use super::outcome::{Begun, Committed};
use super::tx::{Done, Effects, Failure, Tx};
use crate::hints::{HintBoard, raise};
use crate::queue::Item;
use crate::sqlite::Locks;

/// The maximum number of queued jobs. Beyond it, callers wait.
pub(super) const WRITE_QUEUE: usize = 1024;

/// The maximum number of jobs of one transaction: it limits the wait of its first job.
const BATCH_MAX: usize = 256;

/// The maximum number of answered jobs that are kept over failed commits. Beyond it, relaxed jobs are refused too.
const KEPT_MAX: usize = 4096;

/// The maximum time between the answer of a job and its commit (see [`Durability::Relaxed`]).
const RELAXED_DELAY: Duration = Duration::from_millis(50);

/// The maximum time between a commit with events and their indexing. A long one: the messages of a minute share the pages
/// of one batch. A search, a deletion and pruning index what is left themselves.
const INDEX_DELAY: Duration = Duration::from_secs(60);

/// The number of events that are indexed before [`INDEX_DELAY`] has passed. Queries of one run read about as many
/// events one by one.
const INDEX_EVENTS: u64 = 1024;

/// The delay before a failed batch of indexing is repeated.
const INDEX_RETRY: Duration = Duration::from_secs(60);

/// The delay before a failed commit is retried without a new job.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A job without its types.
pub(super) trait Job: Send {
    /// Executes the job and stores the result. It may be called again after a rollback.
    fn execute(&mut self, tx: &mut Tx<'_>) -> Done<()>;
    /// Sends the result or the error to the caller. Does nothing the second time.
    fn answer(&mut self, outcome: Result<(), StoreError>);
    /// Whether the caller was told that the job is done.
    fn is_promised(&self) -> bool;
    /// The durability of the job.
    fn durability(&self) -> Durability;
}

struct Work<T, F> {
    durability: Durability,
    run: F,
    result: Option<T>,
    caller: Option<oneshot::Sender<Result<T, StoreError>>>,
}

/// A job, and the receiver of its answer.
pub(super) fn job<T, F>(durability: Durability, run: F) -> (Box<dyn Job>, oneshot::Receiver<Result<T, StoreError>>)
where
    T: Send + 'static,
    F: Fn(&mut Tx<'_>) -> Done<T> + Send + 'static,
{
    let (caller, answer) = oneshot::channel();
    (Box::new(Work { durability, run, result: None, caller: Some(caller) }), answer)
}

impl<T: Send, F: Fn(&mut Tx<'_>) -> Done<T> + Send> Job for Work<T, F> {
    fn execute(&mut self, tx: &mut Tx<'_>) -> Done<()> {
        self.result = None;
        self.result = Some((self.run)(tx)?);
        Ok(())
    }

    fn answer(&mut self, outcome: Result<(), StoreError>) {
        let Some(caller) = self.caller.take() else { return };
        let result = outcome.and_then(|()| self.result.take().ok_or_else(crate::queue::closed));
        let _ = caller.send(result); // whoever asked gave up waiting: the work is done all the same
    }

    fn is_promised(&self) -> bool {
        self.caller.is_none()
    }

    fn durability(&self) -> Durability {
        self.durability
    }
}

/// Figures of the store since it was opened.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// See [`StoreOptions::on_commit`](super::StoreOptions::on_commit).
    pub(super) on_commit: Option<fn(Duration)>,
    pub(super) jobs: AtomicU64,
    pub(super) commits: AtomicU64,
    pub(super) statements: AtomicU64,
    pub(super) indexing: AtomicU64,
    pub(super) read_statements: AtomicU64,
    /// Counted by the connection that writes.
    pub(super) deadlocks: Arc<AtomicU64>,
}

/// The signals after each commit.
pub(super) struct Signals {
    pub(super) tip: watch::Sender<Seq>,
    pub(super) outbox: watch::Sender<u64>,
    /// The hints of a store that shares its database.
    pub(super) hints: Arc<HintBoard>,
}

impl Signals {
    /// The signals of a store with this last event.
    pub(super) fn new(last: Seq) -> Self {
        Self::with_hints(last, HintBoard::alone())
    }

    /// The same, with hints.
    pub(super) fn with_hints(last: Seq, hints: HintBoard) -> Self {
        Self { tip: watch::Sender::new(last), outbox: watch::Sender::new(0), hints: Arc::new(hints) }
    }

    /// Counts a commit, and wakes the readers of events and the outbox.
    pub(super) fn committed(&self, counters: &Counters, effects: &Effects) {
        counters.commits.fetch_add(1, Ordering::Relaxed);
        counters.statements.fetch_add(effects.statements, Ordering::Relaxed);
        counters.indexing.fetch_add(effects.indexing, Ordering::Relaxed);
        if let Some(seq) = effects.last_event {
            // Never back: another signal may have announced a later event already.
            raise(&self.tip, seq);
        }
        if effects.outbox {
            self.outbox.send_modify(|commits| *commits += 1);
        }
        self.hints.committed(effects.last_event, effects.outbox);
    }
}

/// The state of the writing thread.
pub(super) struct Writer {
    conn: Connection,
    items: Receiver<Item<Box<dyn Job>>>,
    signals: Arc<Signals>,
    counters: Arc<Counters>,
    /// The jobs of the open transaction, in order; while none is open, the answered jobs of a failed one.
    batch: Vec<Box<dyn Job>>,
    /// The number of the first jobs of the batch that were answered and part of the last commit, which may be unclear.
    unclear: usize,
    /// While the jobs of a batch are executed one by one: until when they wait for locks.
    until: Option<Instant>,
    effects: Effects,
    /// Whether a transaction is open.
    open: bool,
    /// The latest time of the next commit. `None`: there is nothing to commit.
    due: Option<Instant>,
    /// When the next batch of events is indexed. `None`: all events are indexed.
    index_due: Option<Instant>,
    /// Whether the last batch has failed.
    index_failed: bool,
    /// The last indexed event.
    indexed: u64,
    /// Whether the last commit has failed. Only the first failure of several is an error of the log.
    failing: bool,
    closing: bool,
    /// The locks of the store. They are dropped after the connection is closed.
    _locks: Option<Arc<Option<Locks>>>,
}

impl Writer {
    pub(super) fn new(
        conn: Connection,
        items: Receiver<Item<Box<dyn Job>>>,
        signals: Arc<Signals>,
        counters: Arc<Counters>,
        locks: Option<Arc<Option<Locks>>>,
    ) -> Self {
        let tip = signals.tip.borrow().0;
        let indexed = index::position(&conn).unwrap_or(tip);
        let delay = if tip.saturating_sub(indexed) >= INDEX_EVENTS { Duration::ZERO } else { INDEX_DELAY };
        Self {
            conn,
            items,
            signals,
            counters,
            batch: Vec::new(),
            unclear: 0,
            until: None,
            effects: Effects::default(),
            open: false,
            due: None,
            index_due: Some(Instant::now() + delay), // what the process before may have left
            index_failed: false,
            indexed,
            failing: false,
            closing: false,
            _locks: locks,
        }
    }

    /// Executes jobs until the queue is closed, then commits the rest and moves the log into the database file.
    pub(super) fn run(mut self) {
        while !self.closing {
            self.wait();
            while !self.closing && self.batch.len() < BATCH_MAX {
                let Ok(item) = self.items.try_recv() else { break };
                self.read(item);
            }
            if self.must_commit() {
                self.commit();
            }
            if self.index_due.is_some_and(|due| due <= Instant::now()) {
                self.index();
            }
            self.conn.check_idle();
        }
        self.end();
    }

    /// Waits for the first job, or until the commit or the indexing is due.
    fn wait(&mut self) {
        let now = Instant::now();
        let due = self.due.into_iter().chain(self.index_due).chain(self.conn.next_check()).min();
        let item = match due {
            None => self.items.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => self.items.recv_timeout(due.saturating_duration_since(now)),
        };
        match item {
            Ok(item) => self.read(item),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.closing = true,
        }
    }

    fn read(&mut self, item: Item<Box<dyn Job>>) {
        match item {
            Item::Job(job, _slot) => {
                self.counters.jobs.fetch_add(1, Ordering::Relaxed);
                self.take(job);
            }
            Item::Close => self.closing = true,
        }
    }

    /// Indexes some batches of events, each in a transaction of its own after that of the jobs: a failure concerns no job.
    /// The more events are behind, the more batches, so that the rest does not grow.
    fn index(&mut self) {
        let behind = self.signals.tip.borrow().0.saturating_sub(self.indexed);
        for _ in 0..=behind / INDEX_EVENTS {
            if self.open || !self.batch.is_empty() {
                self.commit();
            }
            let done = if self.batch.is_empty() {
                self.index_batch()
            } else {
                Err(Failure::Broken("earlier jobs could not be committed".into()))
            };
            self.index_failed = done.is_err();
            self.index_due = match done {
                Ok(batch) => {
                    self.signals.committed(&self.counters, &self.effects);
                    self.indexed = batch.upto;
                    batch.more.then(Instant::now)
                }
                Err(error @ Failure::Contended(_)) => {
                    self.rollback();
                    debug!(%error, "the indexes could not be written yet");
                    Some(Instant::now() + RETRY_DELAY)
                }
                Err(error) => {
                    self.rollback();
                    warn!(%error, "the indexes could not be written");
                    Some(Instant::now() + INDEX_RETRY)
                }
            };
            if self.index_failed || self.index_due.is_none() {
                return;
            }
        }
    }

    fn index_batch(&mut self) -> Done<index::Batch> {
        self.begin_after_earlier()?;
        let batch = index::next_batch(&mut Tx::new(&self.conn, &mut self.effects))?;
        match self.conn.commit()? {
            Committed::Yes(_) => Ok(batch),
            Committed::Lost => Err(Failure::Broken("the connection to the database was lost".into())),
        }
    }

    fn must_commit(&self) -> bool {
        self.batch.len() >= BATCH_MAX
            || self.batch.iter().any(|job| !job.is_promised())
            || self.due.is_some_and(|due| due <= Instant::now())
    }

    /// Executes one job in the open transaction.
    fn take(&mut self, mut job: Box<dyn Job>) {
        if job.durability() == Durability::Relaxed && self.batch.len() >= KEPT_MAX {
            return job.answer(Err(StoreError::Unavailable("too much work waits for the disk".into())));
        }
        if let Err(failure) = self.begin() {
            self.abort(&failure);
            return match failure {
                Failure::Contended(_) => self.take_next(job),
                failure => job.answer(Err(StoreError::Unavailable(failure.to_string()))),
            };
        }
        let (before, events) = (self.conn.changes(), self.effects.events.len());
        self.effects.subjects.begin_job(self.batch.is_empty());
        match job.execute(&mut Tx::new(&self.conn, &mut self.effects)) {
            Ok(()) => {
                if job.durability() == Durability::Relaxed {
                    job.answer(Ok(()));
                }
                self.batch.push(job);
            }
            Err(Failure::Refused(error)) if self.conn.changes() == before => {
                self.effects.events.truncate(events);
                job.answer(Err(error));
            }
            Err(Failure::OutOfOrder) => {
                self.effects.events.truncate(events);
                if self.conn.changes() != before {
                    self.redo(); // without what the job has written
                }
                self.take_alone(job);
            }
            Err(failure @ Failure::Contended(_)) => {
                self.batch.push(job);
                self.abort(&failure);
            }
            Err(_) => {
                self.batch.push(job);
                self.redo();
            }
        }
    }

    /// Commits the transaction, with its locks, and executes a job in the next one.
    fn take_alone(&mut self, job: Box<dyn Job>) {
        self.commit();
        self.take_next(job);
    }

    /// Executes a job unless earlier ones could not be committed.
    fn take_next(&mut self, mut job: Box<dyn Job>) {
        if self.batch.is_empty() {
            self.take(job);
        } else {
            job.answer(Err(StoreError::Unavailable("earlier work waits for the disk".into())));
        }
    }

    /// Opens a transaction unless one is open, and executes the kept jobs of a failed one in it.
    fn begin(&mut self) -> Done<()> {
        if self.open {
            return Ok(());
        }
        self.begin_after_earlier()?;
        self.open = true;
        self.due = Some(Instant::now() + RELAXED_DELAY);
        self.execute_each()
    }

    /// Opens a transaction. If the one before was committed after all, its effects are announced.
    fn begin_after_earlier(&mut self) -> Done<()> {
        if let Begun::EarlierCommitted(newest) = self.conn.begin()? {
            // The callers of these jobs have got an error or an answer before. Those behind them were not executed.
            self.batch.drain(..self.unclear.min(self.batch.len()));
            self.effects.last_event = newest.or(self.effects.last_event);
            self.signals.committed(&self.counters, &self.effects);
        }
        self.effects = Effects::default();
        Ok(())
    }

    /// Executes all jobs of this transaction once more after a failure, each in a savepoint.
    fn redo(&mut self) {
        self.rollback();
        if let Err(failure) = self.begin() {
            self.abort(&failure);
        }
    }

    /// Executes the batch, each job in a savepoint. If one of them makes the transaction useless, it and the jobs after it
    /// stay in the batch.
    fn execute_each(&mut self) -> Done<()> {
        let mut jobs = std::mem::take(&mut self.batch).into_iter();
        let outcome = jobs.by_ref().try_for_each(|job| self.execute_again(job));
        self.batch.extend(jobs);
        outcome
    }

    /// Executes a job in a savepoint. If it fails, it is answered and dropped. If it is already answered, the whole
    /// transaction has failed: nothing may be written without that job.
    fn execute_again(&mut self, mut job: Box<dyn Job>) -> Done<()> {
        let outcome = match self.execute_in_savepoint(&mut *job) {
            Ok(outcome) => outcome,
            Err(failure) => {
                self.batch.push(job);
                return Err(failure);
            }
        };
        match outcome {
            Ok(()) => {
                if job.durability() == Durability::Relaxed {
                    job.answer(Ok(()));
                }
                self.batch.push(job);
            }
            Err(Failure::Refused(error)) if job.is_promised() && error.is_elsewhere() => {
                // As below. The new owner of the lane or the work continues from what the store has.
                info!(%error, "a write is dropped: its work has another owner");
            }
            Err(Failure::Refused(error)) if job.is_promised() => {
                // Only an unanswered job can have made this one possible, and then nobody can have depended on this one.
                error!(%error, "an answered write no longer applies");
            }
            Err(Failure::Rejected(error)) if job.is_promised() => {
                // The answer came before the database had seen the rows. To keep the job would end all writing.
                error!(%error, "an answered write cannot be stored; it is lost");
            }
            // What waits for a lock is repeated, and answered afterwards.
            Err(failure) if job.is_promised() || matches!(failure, Failure::Contended(_)) => {
                self.batch.push(job);
                return Err(failure);
            }
            Err(failure) => job.answer(Err(failure.into_store_error())),
        }
        Ok(())
    }

    /// Executes a job in a savepoint, and returns its outcome.
    ///
    /// # Errors
    /// The transaction cannot be used: the rows of a failed job may still be in it, or all rows before are gone.
    fn execute_in_savepoint(&mut self, job: &mut dyn Job) -> Done<Done<()>> {
        self.conn.savepoint()?;
        let before = self.effects.mark();
        let mut tx = Tx::new(&self.conn, &mut self.effects);
        let mut outcome = job.execute(&mut tx).and_then(|()| ledger::try_deferred(&mut tx, before));
        if outcome.is_ok() {
            outcome = self.conn.release_savepoint();
        }
        if let Err(failure) = outcome {
            self.effects.return_to(before);
            if !self.conn.in_transaction() {
                return Err(failure); // SQLite has rolled everything back by itself, as it may when the disk is full
            }
            self.conn.rollback_to_savepoint()?;
            return Ok(Err(failure));
        }
        Ok(outcome)
    }

    fn commit(&mut self) {
        if let Err(failure) = self.try_commit() {
            self.abort(&failure);
        }
    }

    /// Commits the transaction, and announces that.
    fn try_commit(&mut self) -> Done<()> {
        let begun = Instant::now();
        let mut done = self.begin().and_then(|()| self.flush_and_commit());
        if matches!(done, Ok(Committed::Lost)) {
            self.rollback();
            done = self.begin().and_then(|()| self.flush_and_commit());
        }
        if done? == Committed::Lost {
            return Err(Failure::Broken("the connection to the database was lost twice".into()));
        }
        crash_point!("store.after-commit");
        self.counters.on_commit.inspect(|on_commit| on_commit(begun.elapsed()));
        self.announce();
        Ok(())
    }

    fn flush_and_commit(&mut self) -> Done<Committed> {
        let done = self.flush_and_commit_once();
        let is_contended = matches!(done, Err(Failure::Contended(_)));
        if done.is_ok() || is_contended || self.conn.engine() == Engine::Sqlite || self.conn.is_unclear() {
            return done;
        }
        // A statement that nobody waited for has failed. Alone, its job is found.
        self.rollback();
        self.begin()?;
        self.flush_and_commit_once()
    }

    /// Writes the events of the transaction that were put off, and commits. PostgreSQL gets both in one flight.
    fn flush_and_commit_once(&mut self) -> Done<Committed> {
        if !self.effects.events.is_empty() {
            // Whoever holds the lock of the events waits for no other one, and so for nobody who waits here.
            let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
            self.conn.wait_for_locks(left.unwrap_or_else(|| self.conn.lock_limit()));
        }
        ledger::write_deferred(&mut Tx::new(&self.conn, &mut self.effects))?;
        crash_point!("store.before-commit");
        self.unclear = self.batch.iter().filter(|job| job.is_promised()).count();
        let committed = self.conn.commit()?;
        if let Committed::Yes(newest) = committed {
            self.effects.last_event = newest.or(self.effects.last_event);
        }
        Ok(committed)
    }

    /// Wakes the readers of events and the outbox after a commit, and answers the waiting callers.
    fn announce(&mut self) {
        self.open = false;
        self.due = None;
        self.failing = false;
        if let Some(last) = self.effects.last_event {
            let due = self.index_due.get_or_insert_with(|| Instant::now() + INDEX_DELAY);
            if last.saturating_sub(self.indexed) >= INDEX_EVENTS && !self.index_failed {
                *due = Instant::now();
            }
        }
        self.signals.committed(&self.counters, &self.effects);
        for mut job in self.batch.drain(..) {
            job.answer(Ok(()));
        }
    }

    /// Handles a transaction that cannot be committed.
    fn abort(&mut self, failure: &Failure) {
        match failure {
            Failure::Contended(_) => self.separate(),
            _ => self.give_up(failure),
        }
    }

    /// Gives a transaction up: the waiting callers get the error, and the answered jobs are kept.
    fn give_up(&mut self, failure: &Failure) {
        self.rollback();
        let (promised, waiting) = self.batch.drain(..).partition(|job| job.is_promised());
        self.batch = promised;
        for mut job in waiting {
            job.answer(Err(StoreError::Unavailable(failure.to_string())));
        }
        let kept = self.batch.len();
        if std::mem::replace(&mut self.failing, true) {
            debug!(error = %failure, kept, "the store still cannot commit");
        } else {
            error!(error = %failure, kept, "the store could not commit");
        }
        self.due = (!self.batch.is_empty()).then(|| Instant::now() + RETRY_DELAY);
    }

    fn rollback(&mut self) {
        self.open = false;
        // SQLite has rolled back by itself after some errors.
        if self.conn.in_transaction()
            && let Err(failure) = self.conn.rollback()
        {
            error!(error = %failure, "the store could not roll back");
        }
    }

    /// Commits and indexes the rest, and leaves a database file that needs no log.
    fn end(mut self) {
        if self.open || !self.batch.is_empty() {
            self.commit();
        }
        while self.index_due.is_some() && !self.index_failed {
            self.index();
        }
        if !self.batch.is_empty() {
            error!(lost = self.batch.len(), "the store was closed before everything could be written");
        }
        self.conn.finish();
    }
}

#[cfg(test)]
mod batch_tests;
#[cfg(test)]
mod lock_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod trial;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{Queue, queue};
    use crate::value::params;

    /// A writer over a table whose rows can make a commit fail: by a reference that is checked only at the commit.
    struct Harness {
        queue: Queue<Box<dyn Job>>,
        signals: Arc<Signals>,
        thread: std::thread::JoinHandle<()>,
        file: tempfile::NamedTempFile,
    }

    impl Harness {
        fn new() -> Self {
            let file = tempfile::NamedTempFile::new().expect("a file");
            let conn = rusqlite::Connection::open(file.path()).expect("a database");
            conn.execute_batch(
                "PRAGMA foreign_keys = ON;
                 CREATE TABLE parents (id INTEGER PRIMARY KEY);
                 CREATE TABLE rows (n INTEGER, parent INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED);",
            )
            .expect("tables");
            let (queue, items) = queue(16, 1);
            let signals = Arc::new(Signals::new(Seq::default()));
            let writer = Writer::new(Connection::Sqlite(conn.into()), items, signals.clone(), Arc::default(), None);
            let thread = std::thread::spawn(move || writer.run());
            Self { queue, signals, thread, file }
        }

        /// Sends a job that writes `n`. With an orphan, no commit that contains the job succeeds.
        async fn write(
            &self,
            durability: Durability,
            n: i64,
            orphan: bool,
        ) -> oneshot::Receiver<Result<i64, StoreError>> {
            let (job, answer) = job(durability, move |tx| {
                tx.post("INSERT INTO rows (n, parent) VALUES (?1, ?2)", params![n, orphan.then_some(1)])?;
                tx.effects.last_event = Some(n.unsigned_abs());
                Ok(n)
            });
            self.queue.send(job).await.expect("the writer lives");
            answer
        }

        /// Sends a job that writes and then refuses itself.
        async fn write_and_refuse(&self, n: i64) -> oneshot::Receiver<Result<(), StoreError>> {
            let (job, answer) = job(Durability::Committed, move |tx| {
                tx.post("INSERT INTO rows (n) VALUES (?1)", params![n])?;
                Err(StoreError::NotFound("x".into()).into())
            });
            self.queue.send(job).await.expect("the writer lives");
            answer
        }

        /// Ends the writer and returns the written values, in order.
        fn end(self) -> Vec<i64> {
            self.queue.close();
            self.thread.join().expect("the writer did not panic");
            let conn = rusqlite::Connection::open(self.file.path()).expect("a database");
            let mut rows = conn.prepare("SELECT n FROM rows ORDER BY rowid").expect("a query");
            let numbers = rows.query_map([], |row| row.get(0)).expect("rows");
            numbers.collect::<Result<_, _>>().expect("numbers")
        }
    }

    use Durability::{Committed, Relaxed};

    #[tokio::test]
    async fn a_failed_commit_is_told_to_whoever_waits_and_loses_nothing_promised() {
        let harness = Harness::new();
        let mut tip = harness.signals.tip.subscribe();
        let relaxed = harness.write(Relaxed, 1, false).await.await.expect("answered");
        assert_eq!(relaxed.ok(), Some(1));
        let failed = harness.write(Committed, 2, true).await.await.expect("answered");
        assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{failed:?}");
        assert!(!tip.has_changed().expect("the writer lives"), "nothing was committed");

        let next = harness.write(Committed, 3, false).await.await.expect("answered");
        assert_eq!(next.ok(), Some(3));
        assert_eq!(*tip.borrow_and_update(), Seq(3));
        assert_eq!(harness.end(), [1, 3], "what was promised comes first, and once");
    }

    #[tokio::test]
    async fn a_job_that_fails_after_writing_leaves_nothing_and_harms_nobody() {
        let harness = Harness::new();
        // Sent together, so that they mostly share a transaction.
        let first = harness.write(Relaxed, 1, false).await;
        let second = harness.write(Committed, 2, false).await;
        let refused = harness.write_and_refuse(3).await;
        let fourth = harness.write(Committed, 4, false).await;
        assert!(matches!(refused.await.expect("answered"), Err(StoreError::NotFound(_))));
        for (n, answer) in [(1, first), (2, second), (4, fourth)] {
            assert_eq!(answer.await.expect("answered").ok(), Some(n));
        }
        assert_eq!(harness.end(), [1, 2, 4]);
    }

    #[tokio::test]
    async fn events_that_a_refused_job_has_put_off_are_not_written() {
        let harness = Harness::new();
        let (job, refused) = job::<(), _>(Durability::Committed, |tx| {
            tx.effects.events.push(1_i64.into()); // there is no table of events here: writing it would fail
            Err(StoreError::NotFound("x".into()).into())
        });
        harness.queue.send(job).await.expect("the writer lives");
        assert!(matches!(refused.await.expect("answered"), Err(StoreError::NotFound(_))));
        assert_eq!(harness.write(Committed, 1, false).await.await.expect("answered").ok(), Some(1));
        assert_eq!(harness.end(), [1]);
    }

    #[test]
    fn an_announcement_that_comes_late_does_not_move_the_tip_back() {
        let signals = Signals::new(Seq(5));
        let mut tip = signals.tip.subscribe();
        for (event, changed, newest) in [(3, false, 5), (7, true, 7), (6, false, 7)] {
            let effects = Effects { last_event: Some(event), ..Effects::default() };
            signals.committed(&Counters::default(), &effects);
            assert_eq!(tip.has_changed().expect("the sender lives"), changed);
            assert_eq!(*tip.borrow_and_update(), Seq(newest));
        }
    }

    #[tokio::test]
    async fn closing_commits_what_was_answered() {
        let harness = Harness::new();
        assert!(harness.write(Relaxed, 1, false).await.await.expect("answered").is_ok());
        assert_eq!(harness.end(), [1]);
    }

    #[tokio::test]
    async fn a_caller_that_gave_up_changes_nothing() {
        let harness = Harness::new();
        drop(harness.write(Committed, 1, false).await);
        assert_eq!(harness.end(), [1]);
    }
}
