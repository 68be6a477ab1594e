//! The store: SQLite behind two functions, `write` and `read`, and one of two executors under them.
//!
//! A file is in WAL mode, with one thread that writes and two that read (`writer`, `readers`). A database in
//! memory has one connection, which each caller uses in its own task (`inline`). All the SQL is the same.

mod acted_on;
mod archive;
mod damaged;
mod edits;
mod ephemeral;
mod gates;
mod index;
mod inline;
mod jobs;
mod lane_ports;
mod lanes;
mod ledger;
mod open;
mod outbox;
#[cfg(test)]
mod plans;
mod ports;
mod principals;
mod prune;
mod readers;
mod reads;
mod routine_runs;
mod routines;
mod rows;
mod spending;
mod switches;
mod threads;
mod tx;
mod work;
mod writer;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use belay_protocol::{Durability, Seq, StoreError};

use self::inline::Inline;
pub(crate) use self::open::{Version, known_schema, lock_path, with_suffix};
use self::readers::{READ_QUEUE, READERS, Read};
use self::tx::{Done, Tx};
use self::writer::{Counters, Job, Signals, WRITE_QUEUE, Writer};
use crate::error::OpenError;
use crate::queue::{Queue, closed, queue};

/// Choices when opening a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreOptions {
    /// Most pages (of 4096 bytes) that the database may have; beyond that writes are answered with
    /// [`StoreError::Unavailable`]. `None`: as many as the disk takes.
    pub max_pages: Option<u32>,
}

/// A store in a SQLite file, or in memory. Clones share it.
///
/// Dropping the last clone ends its threads too and waits for them, which blocks for as long as a commit takes: prefer
/// [`SqliteStore::close`].
#[derive(Clone)]
pub struct SqliteStore {
    shared: Arc<Shared>,
}

struct Shared {
    executor: Executor,
    signals: Arc<Signals>,
    counters: Arc<Counters>,
}

/// Who executes the SQL.
enum Executor {
    /// Threads of the store's own, over a file.
    Threads(Threads),
    /// The caller, over a database in memory.
    Inline(Inline),
}

struct Threads {
    writes: Queue<Box<dyn Job>>,
    reads: Arc<Queue<Read>>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

/// What was written since the store was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterStats {
    /// Jobs executed; refused ones included.
    pub jobs: u64,
    /// Transactions committed.
    pub commits: u64,
    /// Statements of committed transactions.
    pub statements: u64,
}

impl SqliteStore {
    /// Opens the file, creating it (0600), its directories (0700) and its tables where they are missing. Blocks.
    ///
    /// Takes `<path>.lock`, and locks the database file itself, for as long as the store lives: one file, one process, by whichever
    /// name.
    ///
    /// # Errors
    /// [`OpenError`] says what to do about each.
    pub fn open(path: &Path, options: StoreOptions) -> Result<Self, OpenError> {
        Self::open_locked(path, options, true)
    }

    /// Opens a store that another one has too, which corrupts nothing as long as both are in one process. For tests of what the
    /// rows alone settle between two.
    ///
    /// # Errors
    /// As [`SqliteStore::open`], but never [`OpenError::Locked`].
    #[doc(hidden)]
    pub fn open_beside_another(path: &Path, options: StoreOptions) -> Result<Self, OpenError> {
        Self::open_locked(path, options, false)
    }

    fn open_locked(path: &Path, options: StoreOptions, exclusive: bool) -> Result<Self, OpenError> {
        let (conn, locks) = open::open_writer(path, exclusive)?;
        let locks = Arc::new(locks);
        if let Some(pages) = options.max_pages {
            limit_pages(&conn, pages)?;
        }
        let last = reads::last_event(&conn).map_err(|failure| OpenError::Sqlite(failure.into()))?;
        let signals = Arc::new(Signals::new(Seq(last)));
        let counters = Arc::new(Counters::default());

        let (writes, letters) = queue(WRITE_QUEUE, 1);
        let (reads, requests) = queue(READ_QUEUE, READERS);
        let requests = Arc::new(Mutex::new(requests));
        // From here on a failure drops the queues, and the threads that run already end by that.
        let mut threads = Vec::with_capacity(1 + READERS);
        for n in 1..=READERS {
            let conn = open::open_reader(path)?;
            let requests = requests.clone();
            let locks = locks.clone();
            threads.push(spawn(path, format!("store-read-{n}"), move || {
                readers::run(&conn, &requests);
                drop(conn);
                drop(locks); // after the connection, see there
            })?);
        }
        let writer = Writer::new(conn, letters, signals.clone(), counters.clone(), Some(locks));
        threads.push(spawn(path, "store-write".into(), move || writer.run())?);

        let executor = Executor::Threads(Threads { writes, reads: Arc::new(reads), handles: Mutex::new(threads) });
        Ok(Self { shared: Arc::new(Shared { executor, signals, counters }) })
    }

    /// An empty store in memory. It forgets everything with its last clone, and grows with use.
    ///
    /// It has no thread and no timer: each operation is executed and committed in the task of its caller, before its future
    /// returns for the first time. So tests with paused time see it as instantaneous.
    ///
    /// # Errors
    /// [`OpenError::Sqlite`] when there is no memory for it.
    pub fn in_memory() -> Result<Self, OpenError> {
        let executor = Executor::Inline(Inline::new(open::open_in_memory()?));
        let signals = Arc::new(Signals::new(Seq::default()));
        Ok(Self { shared: Arc::new(Shared { executor, signals, counters: Arc::default() }) })
    }

    /// Takes no more work, commits what was taken, moves the log into the database file, and ends the threads. Further
    /// calls, and other clones, find the store closed ([`StoreError::Unavailable`]).
    ///
    /// # Cancel safety
    /// Dropped midway, closing goes on by itself.
    pub async fn close(&self) {
        if let Executor::Inline(inline) = &self.shared.executor {
            return inline.close();
        }
        let shared = self.shared.clone();
        let joined = tokio::task::spawn_blocking(move || shared.close());
        if joined.await.is_err() {
            tracing::error!("a thread of the store panicked");
        }
    }

    /// Figures of what was written.
    pub fn stats(&self) -> WriterStats {
        let counters = &self.shared.counters;
        WriterStats {
            jobs: counters.jobs.load(Ordering::Relaxed),
            commits: counters.commits.load(Ordering::Relaxed),
            statements: counters.statements.load(Ordering::Relaxed),
        }
    }

    /// Changes [`StoreOptions::max_pages`] of the open store. For tests of a disk that is full and then is not.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the store is closed.
    #[doc(hidden)]
    pub async fn set_max_pages(&self, pages: u32) -> Result<(), StoreError> {
        let sql = format!("PRAGMA max_page_count = {pages}");
        self.write(Durability::Relaxed, move |tx| tx.row(&sql, [], |_| Ok(()))).await.map(|_| ())
    }

    /// Has the writer do it, and waits as long as its durability says.
    async fn write<T: Send + 'static>(
        &self,
        durability: Durability,
        run: impl Fn(&mut Tx<'_>) -> Done<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let Shared { executor, signals, counters } = &*self.shared;
        match executor {
            Executor::Inline(inline) => inline.write(signals, counters, run),
            Executor::Threads(threads) => {
                let (job, answer) = writer::job(durability, run);
                threads.writes.send(job).await?;
                answer.await.unwrap_or_else(|_| Err(closed()))
            }
        }
    }

    /// Has a reader do it.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&rusqlite::Connection) -> Done<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        match &self.shared.executor {
            Executor::Inline(inline) => inline.read(read),
            Executor::Threads(threads) => readers::read(&threads.reads, read).await,
        }
    }
}

impl Shared {
    fn close(&self) {
        let Executor::Threads(threads) = &self.executor else { return };
        threads.writes.close();
        threads.reads.close();
        let handles = std::mem::take(&mut *threads.handles.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in handles {
            if thread.join().is_err() {
                tracing::error!("a thread of the store panicked");
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}

fn spawn(path: &Path, name: String, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, OpenError> {
    Builder::new().name(name).spawn(run).map_err(|source| OpenError::Io { path: path.into(), source })
}

fn limit_pages(conn: &rusqlite::Connection, pages: u32) -> Result<(), rusqlite::Error> {
    conn.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
