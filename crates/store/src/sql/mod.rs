//! The store: a database behind two functions, `write` and `read`, and two executors below them.
//!
//! A file is in WAL mode, with one thread that writes and two threads that read (`writer`, `readers`). A database in
//! memory has one connection, which each caller uses in its own task (`inline`). The SQL is the same for both.

mod acceptance;
mod acted_on;
mod approvals;
mod archive;
mod blobs;
mod connection;
mod cursors;
mod damaged;
mod edits;
mod ends;
mod ephemeral;
mod freezes;
mod index;
mod inline;
mod jobs;
mod key_check;
mod lane_guard;
mod lane_ports;
mod lanes;
mod ledger;
mod moves;
mod node_mail;
mod nodes;
mod note_vectors;
mod notes;
mod orders;
mod outbox;
mod outcome;
mod outputs;
mod people;
#[cfg_attr(not(feature = "postgres"), path = "no_pg.rs")]
mod pg;
mod pins;
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
mod runs;
mod sent_files;
mod sign_ins;
mod skills;
mod slices;
mod spending;
mod sqlite_connection;
mod switches;
mod takeover;
mod threads;
mod titles;
mod tx;
mod uploads;
mod work;
mod work_leases;
mod writer;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use belay_protocol::cluster::Topic;
use belay_protocol::store::Hints;
use belay_protocol::{BootId, Durability, MemoryOwner, Seq, StoreError};
use tokio::sync::watch;

pub(crate) use self::connection::{Connection, Engine, Failure, Row};
pub(crate) use self::index::words_for;
use self::inline::Inline;
pub use self::nodes::DatabaseLoss;
pub(crate) use self::outputs::LastPart;
pub(crate) use self::pg::{PgSession, PgSettings, Role};
use self::readers::{READ_QUEUE, READERS, Read};
use self::sqlite_connection::SqliteConnection;
use self::tx::{Done, Tx};
use self::writer::{Counters, Job, Signals, WRITE_QUEUE, Writer};
use crate::error::OpenError;
use crate::hints::{Hearing, HintBoard};
use crate::postgres::{Hinter, History, PostgresUrl};
use crate::queue::{Queue, closed, queue};
use crate::sqlite::{Locks, Trouble, with_suffix};
use crate::unfinished::Unfinished;

/// Options of opening a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreOptions {
    /// The maximum number of pages (of 4096 bytes) of the database. Beyond it, writes fail with
    /// [`StoreError::Unavailable`]. `None`: limited by the disk.
    pub max_pages: Option<u32>,
    /// Called after each commit of write jobs with the time that it took, on the thread that writes.
    pub on_commit: Option<fn(Duration)>,
}

/// A store in a SQLite file, in PostgreSQL, or in memory. Clones share it.
///
/// Dropping the last clone also ends its threads and waits for them, which blocks for the duration of a commit: prefer
/// [`SqlStore::close`].
#[derive(Clone)]
pub struct SqlStore {
    shared: Arc<Shared>,
}

struct Shared {
    executor: Executor,
    signals: Arc<Signals>,
    counters: Arc<Counters>,
    /// Round trips to PostgreSQL.
    round_trips: Option<Arc<AtomicU64>>,
    /// Whether PostgreSQL has what this store has seen committed; `None`: another engine.
    history: Option<Arc<History>>,
    /// The losses that were known when the store was opened.
    losses: Vec<DatabaseLoss>,
    /// The owners that may have notes. The lock is held for a look-up or an insertion.
    owners: Mutex<HashSet<MemoryOwner>>,
    /// The thread of the hints; `None`: the store is alone, or closed. The lock is held for its end.
    hinter: Mutex<Option<Hinter>>,
    /// Why nothing is written any more. `None`: nothing can lead to that.
    trouble: Option<Trouble>,
    /// Whether the last write that somebody waited for has failed because of the database.
    failing: AtomicBool,
}

/// The executor of the SQL.
enum Executor {
    /// Threads of the store's own, over a file or PostgreSQL.
    Threads(Threads),
    /// The caller, over a database in memory.
    Inline(Inline),
}

struct Threads {
    /// The file of a SQLite database.
    path: Option<PathBuf>,
    writes: Queue<Box<dyn Job>>,
    reads: Arc<Queue<Read>>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

/// Limits of the connections to PostgreSQL.
#[derive(Clone, Copy, Debug)]
pub struct PostgresLimits {
    /// The number of connections that read, at least 1. One more writes.
    pub connections: u32,
    /// The longest time of a statement.
    pub statement: Duration,
    /// The longest wait for a lock.
    pub lock: Duration,
}

/// Options of a store that shares its database with other nodes.
#[derive(Clone, Copy, Debug)]
pub struct ClusterOptions {
    /// The start of this node: that of its [`NodeLease`](crate::lease::NodeLease).
    pub boot: BootId,
}

/// What a store shares its database with.
enum Sharing<'a> {
    /// Nothing: a lock excludes others.
    Alone,
    /// Other stores, without hints.
    Silent,
    /// Other nodes.
    Nodes(&'a PostgresUrl),
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
    /// Statements of reads. Of PostgreSQL, only `round_trips` are counted.
    pub read_statements: u64,
    /// Waits for an answer of PostgreSQL, by all connections. Statements that are sent together wait once.
    pub round_trips: u64,
    /// Transactions that PostgreSQL has ended because they and those of other nodes waited for each other's locks. They are
    /// repeated.
    pub deadlocks: u64,
}

/// Sizes of the files of a store, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSizes {
    /// The database file.
    pub database: u64,
    /// The write-ahead log.
    pub wal: u64,
}

impl SqlStore {
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
    /// As [`SqlStore::open`], but never [`OpenError::Locked`].
    #[doc(hidden)]
    pub fn open_beside_another(path: &Path, options: StoreOptions) -> Result<Self, OpenError> {
        Self::open_locked(path, options, false)
    }

    fn open_locked(path: &Path, options: StoreOptions, exclusive: bool) -> Result<Self, OpenError> {
        let (conn, locks) = crate::sqlite::open_writer(path, exclusive, Unfinished::Refuse)?;
        let locks = Arc::new(locks);
        if let Some(pages) = options.max_pages {
            limit_pages(&conn, pages)?;
        }
        let conn = Connection::Sqlite(SqliteConnection::guarded(conn, path, locks.clone())?);
        let readers = (0..READERS).map(|_| {
            let conn = crate::sqlite::open_reader(path)?;
            readers::count_statements(&conn);
            Ok(Connection::Sqlite(conn.into()))
        });
        let sharing = if exclusive { Sharing::Alone } else { Sharing::Silent };
        Self::over(conn, readers, Some(path), None, locks, options, sharing)
    }

    /// Opens a PostgreSQL database. Creates the schema if it is missing. Blocks.
    ///
    /// One daemon writes into it at a time: a lock of the connection that writes excludes others.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn connect(url: &PostgresUrl, limits: PostgresLimits, options: StoreOptions) -> Result<Self, OpenError> {
        Self::connect_with(PgSettings::new(url.clone(), limits, None), limits, options, Sharing::Alone)
    }

    /// Opens a PostgreSQL database that other nodes use too. Creates the schema if it is missing. Blocks.
    ///
    /// A thread with a connection of its own exchanges hints with the other nodes: see [`Hints`]. [`SqlStore::close`] ends it.
    ///
    /// # Errors
    /// As [`SqlStore::connect`]. [`OpenError::Locked`]: a store uses the database alone.
    pub fn connect_cluster(
        url: &PostgresUrl,
        limits: PostgresLimits,
        options: StoreOptions,
        cluster: ClusterOptions,
    ) -> Result<Self, OpenError> {
        let settings = PgSettings::new(url.clone(), limits, Some(cluster.boot));
        Self::connect_with(settings, limits, options, Sharing::Nodes(url))
    }

    /// As [`SqlStore::connect_cluster`], without hints. For a command beside running nodes, and for tests of the rules between
    /// several daemons.
    ///
    /// # Errors
    /// As [`SqlStore::connect_cluster`].
    pub fn connect_beside_another(
        url: &PostgresUrl,
        limits: PostgresLimits,
        options: StoreOptions,
    ) -> Result<Self, OpenError> {
        let settings = PgSettings::new(url.clone(), limits, Some(BootId::new()));
        Self::connect_with(settings, limits, options, Sharing::Silent)
    }

    fn connect_with(
        settings: PgSettings,
        limits: PostgresLimits,
        options: StoreOptions,
        sharing: Sharing<'_>,
    ) -> Result<Self, OpenError> {
        let settings = Arc::new(settings);
        let open =
            |role| PgSession::open(settings.clone(), role).map(|session| Connection::Postgres(Box::new(session)));
        let writer = open(Role::Writer)?;
        let readers = (0..limits.connections).map(|_| open(Role::Reader));
        Self::over(writer, readers, None, Some(settings.clone()), Arc::default(), options, sharing)
    }

    /// Starts the threads: one that writes, and one for each connection that reads. `locks` live as long as they.
    fn over(
        conn: Connection,
        reading: impl ExactSizeIterator<Item = Result<Connection, OpenError>>,
        path: Option<&Path>,
        postgres: Option<Arc<PgSettings>>,
        locks: Arc<Option<Locks>>,
        options: StoreOptions,
        sharing: Sharing<'_>,
    ) -> Result<Self, OpenError> {
        let unreadable = |failure: Failure| OpenError::Database(failure.into());
        if matches!(sharing, Sharing::Alone) {
            nodes::end_all(&conn).map_err(unreadable)?;
        }
        let trouble = conn.trouble();
        let last = reads::last_event(&conn).map_err(unreadable)?;
        let owners = notes::owners(&conn).map_err(unreadable)?;
        let losses = nodes::losses(&conn).map_err(unreadable)?;
        let hints = if matches!(sharing, Sharing::Nodes(_)) { HintBoard::shared() } else { HintBoard::alone() };
        let signals = Arc::new(Signals::with_hints(Seq(last), hints));
        let deadlocks = conn.deadlocks();
        let counters = Arc::new(Counters { on_commit: options.on_commit, deadlocks, ..Counters::default() });

        let (writes, items) = queue(WRITE_QUEUE, 1);
        let (reads, requests) = queue(READ_QUEUE, reading.len());
        let requests = Arc::new(Mutex::new(requests));
        // From here on a failure drops the queues, which ends the threads that run already.
        let mut threads = Vec::with_capacity(1 + reading.len());
        for (n, conn) in reading.enumerate() {
            let conn = conn?;
            let requests = requests.clone();
            let (locks, counters) = (locks.clone(), counters.clone());
            threads.push(spawn(format!("store-read-{}", n + 1), move || {
                readers::run(&conn, &requests, &counters);
                drop(conn);
                drop(locks); // after the connection, see there
            })?);
        }
        let writer = Writer::new(conn, items, signals.clone(), counters.clone(), Some(locks));
        threads.push(spawn("store-write".into(), move || writer.run())?);

        let (round_trips, history) = postgres.map(|settings| (settings.round_trips(), settings.history())).unzip();
        let hinter = match (sharing, &history) {
            (Sharing::Nodes(url), Some(history)) => {
                let (hints, tip) = (signals.hints.clone(), signals.tip.clone());
                let started = Hinter::start(url.clone(), hints, tip, history.clone());
                Some(started.map_err(|error| OpenError::Database(error.into()))?)
            }
            _ => None,
        };
        let executor = Executor::Threads(Threads {
            path: path.map(Path::to_owned),
            writes,
            reads: Arc::new(reads),
            handles: Mutex::new(threads),
        });
        let (owners, hinter, failing) = (Mutex::new(owners), Mutex::new(hinter), AtomicBool::default());
        let shared =
            Shared { executor, signals, counters, round_trips, history, losses, owners, hinter, trouble, failing };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// An empty store in memory. Its data is lost with its last clone. It grows with use.
    ///
    /// It has no thread and no timer: each operation is executed and committed in the task of its caller, before its
    /// future returns for the first time. So operations take no time in tests with paused time.
    ///
    /// # Errors
    /// [`OpenError::Database`] if there is no memory for it.
    pub fn in_memory() -> Result<Self, OpenError> {
        let executor = Executor::Inline(Inline::new(crate::sqlite::open_in_memory()?));
        let signals = Arc::new(Signals::new(Seq::default()));
        Ok(Self {
            shared: Arc::new(Shared {
                executor,
                signals,
                counters: Arc::default(),
                round_trips: None,
                history: None,
                losses: Vec::new(),
                owners: Mutex::default(),
                hinter: Mutex::default(),
                trouble: None,
                failing: AtomicBool::default(),
            }),
        })
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

    /// The losses of committed transactions in the last 7 days, newest first, as the store knew them when it was opened. A
    /// daemon that notices a loss ends, so there are none that it notices itself.
    pub fn losses(&self) -> &[DatabaseLoss] {
        &self.shared.losses
    }

    /// Waits until the database has lost transactions that this store has seen committed, as after the promotion of a standby
    /// that was behind. From then on, nothing can be written. With SQLite it waits for ever.
    pub fn history_lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let lost = self.shared.history.as_ref().map(|history| history.lost());
        async move {
            if let Some(mut lost) = lost
                && lost.wait_for(|lost| *lost).await.is_ok()
            {
                return;
            }
            std::future::pending().await // another engine, or the store is closed
        }
    }

    /// How this store notices the commits of other nodes.
    pub fn hearing(&self) -> watch::Receiver<Hearing> {
        self.shared.signals.hints.hearing()
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
            deadlocks: counters.deadlocks.load(Ordering::Relaxed),
            round_trips: self.shared.round_trips.as_ref().map_or(0, |trips| trips.load(Ordering::Relaxed)),
        }
    }

    /// The sizes of the files now; 0 for a store in memory, and for a missing file. Reads their metadata.
    pub fn file_sizes(&self) -> FileSizes {
        let Executor::Threads(Threads { path: Some(path), .. }) = &self.shared.executor else {
            return FileSizes::default();
        };
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
        FileSizes { database: size(path), wal: size(&with_suffix(path, "-wal")) }
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
        let Shared { executor, signals, counters, failing, .. } = &*self.shared;
        let done = match executor {
            Executor::Inline(inline) => inline.write(signals, counters, run),
            Executor::Threads(threads) => {
                let (job, answer) = writer::job(durability, run);
                threads.writes.send(job).await?;
                answer.await.unwrap_or_else(|_| Err(closed()))
            }
        };
        match &done {
            Ok(_) if failing.load(Ordering::Relaxed) => failing.store(false, Ordering::Relaxed),
            Err(StoreError::Unavailable(_)) => failing.store(true, Ordering::Relaxed),
            _ => {}
        }
        done
    }

    /// Passes the job to the writer without waiting, for a `drop`. Best effort: if the writer is busy, the job is dropped.
    fn try_write(&self, run: impl Fn(&mut Tx<'_>) -> Done<()> + Send + 'static) {
        let Shared { executor, signals, counters, .. } = &*self.shared;
        match executor {
            Executor::Inline(inline) => {
                let _ = inline.write(signals, counters, run); // the store is closed
            }
            Executor::Threads(threads) => threads.writes.try_send(writer::job(Durability::Relaxed, run).0),
        }
    }

    /// Tells the readers of this topic, on all nodes, that a commit concerns it. Nothing happens in a store that is alone.
    fn hint(&self, topic: Topic) {
        self.shared.signals.hints.hint(topic);
    }

    /// The owners that may have notes.
    fn owners(&self) -> MutexGuard<'_, HashSet<MemoryOwner>> {
        self.shared.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes the query to a reader.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Done<T> + Send + 'static,
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
        // After the last commit, whose hints are sent at the end.
        *self.hinter.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Hints for SqlStore {
    /// In a store that is alone, it never changes.
    fn changes(&self, topic: Topic) -> watch::Receiver<u64> {
        self.shared.signals.hints.changes(topic)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, OpenError> {
    Builder::new().name(name).spawn(run).map_err(|error| OpenError::Database(error.into()))
}

fn limit_pages(conn: &rusqlite::Connection, pages: u32) -> Result<(), rusqlite::Error> {
    conn.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))
}

impl std::fmt::Debug for SqlStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlStore").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
