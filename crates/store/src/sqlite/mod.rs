//! The store on disk: SQLite in WAL mode, one thread that writes, two that read.

mod acted_on;
mod archive;
mod damaged;
mod edits;
mod ephemeral;
mod firings;
mod gates;
mod jobs;
mod lanes;
mod ledger;
mod open;
mod outbox;
#[cfg(test)]
mod plans;
mod ports;
mod prune;
mod readers;
mod reads;
mod routines;
mod rows;
mod switches;
mod threads;
mod tx;
mod words;
mod work;
mod writer;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use belay_protocol::{Durability, Seq, StoreError};
use tokio::sync::watch;

pub(crate) use self::open::{known_schema, lock_path, with_suffix};
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

/// A store in a SQLite file. Clones share it.
///
/// Dropping the last clone ends its threads too and waits for them, which blocks for as long as a commit takes: prefer
/// [`SqliteStore::close`].
#[derive(Clone)]
pub struct SqliteStore {
    shared: Arc<Shared>,
}

struct Shared {
    writes: Queue<Box<dyn Job>>,
    reads: Arc<Queue<Read>>,
    signals: Arc<Signals>,
    counters: Arc<Counters>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What the writing thread has done since it was started.
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
        let signals = Arc::new(Signals { tip: watch::Sender::new(Seq(last)), outbox: watch::Sender::new(0) });
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

        let threads = Mutex::new(threads);
        Ok(Self { shared: Arc::new(Shared { writes, reads: Arc::new(reads), signals, counters, threads }) })
    }

    /// Takes no more work, commits what was taken, moves the log into the database file, and ends the threads. Further
    /// calls, and other clones, find the store closed ([`StoreError::Unavailable`]).
    ///
    /// # Cancel safety
    /// Dropped midway, closing goes on by itself.
    pub async fn close(&self) {
        let shared = self.shared.clone();
        let joined = tokio::task::spawn_blocking(move || shared.close());
        if joined.await.is_err() {
            tracing::error!("a thread of the store panicked");
        }
    }

    /// Figures of the writing thread.
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
        let (job, answer) = writer::job(durability, run);
        self.shared.writes.send(job).await?;
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Has a reader do it.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&rusqlite::Connection) -> Done<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        readers::read(&self.shared.reads, read).await
    }
}

impl Shared {
    fn close(&self) {
        self.writes.close();
        self.reads.close();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
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
