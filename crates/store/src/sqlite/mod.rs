//! The store: SQLite behind two functions, `write` and `read`, and two executors below them.
//!
//! A file is in WAL mode, with one thread that writes and two threads that read (`writer`, `readers`). A database in
//! memory has one connection, which each caller uses in its own task (`inline`). The SQL is the same for both.

mod acted_on;
mod approvals;
mod archive;
pub mod backup;
mod damaged;
mod edits;
mod ends;
mod ephemeral;
mod freezes;
mod index;
mod inline;
mod jobs;
mod lane_ports;
mod lanes;
mod ledger;
mod note_vectors;
mod notes;
mod open;
mod outbox;
mod people;
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
mod sent_files;
mod sign_ins;
mod skills;
mod spending;
mod switches;
mod threads;
mod titles;
mod tx;
mod uploads;
mod work;
mod writer;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use belay_protocol::{Durability, MemoryOwner, Seq, StoreError};

use self::inline::Inline;
pub(crate) use self::open::{
    Locks, Version, known_schema, lock_path, lock_store, open_reader, refuse_interrupted_restore,
    triggers_and_views_of, unknown_object, with_suffix,
};
use self::readers::{READ_QUEUE, READERS, Read};
use self::tx::{Done, Tx};
use self::writer::{Counters, Job, Signals, WRITE_QUEUE, Writer};
use crate::error::OpenError;
use crate::queue::{Queue, closed, queue};

/// Options of opening a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreOptions {
    /// The maximum number of pages (of 4096 bytes) of the database. Beyond it, writes fail with
    /// [`StoreError::Unavailable`]. `None`: limited by the disk.
    pub max_pages: Option<u32>,
    /// Called after each commit of write jobs with the time that it took, on the thread that writes.
    pub on_commit: Option<fn(Duration)>,
}

/// A store in a SQLite file, or in memory. Clones share it.
///
/// Dropping the last clone also ends its threads and waits for them, which blocks for the duration of a commit: prefer
/// [`SqliteStore::close`].
#[derive(Clone)]
pub struct SqliteStore {
    shared: Arc<Shared>,
}

struct Shared {
    executor: Executor,
    signals: Arc<Signals>,
    counters: Arc<Counters>,
    /// The owners that may have notes. The lock is held for a look-up or an insertion.
    owners: Mutex<HashSet<MemoryOwner>>,
}

/// The executor of the SQL.
enum Executor {
    /// Threads of the store's own, over a file.
    Threads(Threads),
    /// The caller, over a database in memory.
    Inline(Inline),
}

struct Threads {
    path: PathBuf,
    writes: Queue<Box<dyn Job>>,
    reads: Arc<Queue<Read>>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

/// Figures of the work since the store was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreStats {
    /// Executed write jobs, including refused ones.
    pub jobs: u64,
    /// Committed transactions.
    pub commits: u64,
    /// Statements of committed transactions, without `indexing`.
    pub statements: u64,
    /// Statements that indexed events, runs and words behind the reply.
    pub indexing: u64,
    /// Statements of reads.
    pub read_statements: u64,
}

/// Sizes of the files of a store, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSizes {
    /// The database file.
    pub database: u64,
    /// The write-ahead log.
    pub wal: u64,
}

impl SqliteStore {
    /// Opens the file. Creates the file (0600), its directories (0700) and its tables if they are missing. Blocks.
    ///
    /// Locks `<path>.lock` and the database file itself for the life of the store: one process for each file, under
    /// whatever name.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: &Path, options: StoreOptions) -> Result<Self, OpenError> {
        Self::open_locked(path, options, true)
    }

    /// Opens a store that is already open in the same process, which is safe for the file. For tests of the rules
    /// between two daemons that the rows alone enforce.
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
        let owners = notes::owners(&conn).map_err(|failure| OpenError::Sqlite(failure.into()))?;
        let signals = Arc::new(Signals::new(Seq(last)));
        let counters = Arc::new(Counters { on_commit: options.on_commit, ..Counters::default() });

        let (writes, items) = queue(WRITE_QUEUE, 1);
        let (reads, requests) = queue(READ_QUEUE, READERS);
        let requests = Arc::new(Mutex::new(requests));
        // From here on a failure drops the queues, which ends the threads that run already.
        let mut threads = Vec::with_capacity(1 + READERS);
        for n in 1..=READERS {
            let conn = open::open_reader(path)?;
            let requests = requests.clone();
            let (locks, counters) = (locks.clone(), counters.clone());
            threads.push(spawn(path, format!("store-read-{n}"), move || {
                readers::run(&conn, &requests, &counters);
                drop(conn);
                drop(locks); // after the connection, see there
            })?);
        }
        let writer = Writer::new(conn, items, signals.clone(), counters.clone(), Some(locks));
        threads.push(spawn(path, "store-write".into(), move || writer.run())?);

        let executor = Executor::Threads(Threads {
            path: path.to_owned(),
            writes,
            reads: Arc::new(reads),
            handles: Mutex::new(threads),
        });
        Ok(Self { shared: Arc::new(Shared { executor, signals, counters, owners: Mutex::new(owners) }) })
    }

    /// An empty store in memory. Its data is lost with its last clone. It grows with use.
    ///
    /// It has no thread and no timer: each operation is executed and committed in the task of its caller, before its
    /// future returns for the first time. So operations take no time in tests with paused time.
    ///
    /// # Errors
    /// [`OpenError::Sqlite`] if there is no memory for it.
    pub fn in_memory() -> Result<Self, OpenError> {
        let executor = Executor::Inline(Inline::new(open::open_in_memory()?));
        let signals = Arc::new(Signals::new(Seq::default()));
        Ok(Self { shared: Arc::new(Shared { executor, signals, counters: Arc::default(), owners: Mutex::default() }) })
    }

    /// Refuses new jobs, commits the accepted ones, moves the log into the database file, and ends the threads. Further
    /// calls and other clones get [`StoreError::Unavailable`].
    ///
    /// # Cancel safety
    /// If the future is dropped, closing continues.
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

    /// Figures of the work so far.
    pub fn stats(&self) -> StoreStats {
        let counters = &self.shared.counters;
        StoreStats {
            jobs: counters.jobs.load(Ordering::Relaxed),
            commits: counters.commits.load(Ordering::Relaxed),
            statements: counters.statements.load(Ordering::Relaxed),
            indexing: counters.indexing.load(Ordering::Relaxed),
            read_statements: counters.read_statements.load(Ordering::Relaxed),
        }
    }

    /// The sizes of the files now; 0 for a store in memory, and for a missing file. Reads their metadata.
    pub fn file_sizes(&self) -> FileSizes {
        let Executor::Threads(threads) = &self.shared.executor else { return FileSizes::default() };
        let mut wal = threads.path.clone().into_os_string();
        wal.push("-wal");
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
        FileSizes { database: size(&threads.path), wal: size(Path::new(&wal)) }
    }

    /// Changes [`StoreOptions::max_pages`] of the open store. For tests of a full disk that becomes free again.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the store is closed.
    #[doc(hidden)]
    pub async fn set_max_pages(&self, pages: u32) -> Result<(), StoreError> {
        let sql = format!("PRAGMA max_page_count = {pages}");
        self.write(Durability::Relaxed, move |tx| tx.row(&sql, [], |_| Ok(()))).await.map(|_| ())
    }

    /// Passes the job to the writer and waits as its durability requires.
    async fn write<T: Send + 'static>(
        &self,
        durability: Durability,
        run: impl Fn(&mut Tx<'_>) -> Done<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let Shared { executor, signals, counters, .. } = &*self.shared;
        match executor {
            Executor::Inline(inline) => inline.write(signals, counters, run),
            Executor::Threads(threads) => {
                let (job, answer) = writer::job(durability, run);
                threads.writes.send(job).await?;
                answer.await.unwrap_or_else(|_| Err(closed()))
            }
        }
    }

    /// The owners that may have notes.
    fn owners(&self) -> MutexGuard<'_, HashSet<MemoryOwner>> {
        self.shared.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes the query to a reader.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&rusqlite::Connection) -> Done<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let Shared { executor, counters, .. } = &*self.shared;
        match executor {
            Executor::Inline(inline) => inline.read(counters, read),
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
