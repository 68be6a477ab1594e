//! Inspection of a store without opening it: the state that a start would find.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::error::OpenError;
use crate::postgres::{PostgresUrl, inspect_schema};
use crate::sql::PostgresLimits;
use crate::sqlite::{
    Version, check_at_rest, check_gone, known_schema, lock_path, refuse_interrupted_restore, with_suffix,
};

/// How long a check waits for the locks of a daemon.
const BUSY: Duration = Duration::from_secs(5);

/// The result of an inspection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The schema of the store; 0 for a file without tables; `None`: there is no file, or no tables. It may be higher than
    /// `known` if this program can use it.
    pub schema: Option<u32>,
    /// The schema of this program. Opening the store migrates an older one to it.
    pub known: u32,
    /// The process that uses the store.
    pub held: Held,
    /// The transactions that were lost with the write-ahead log, in words for people.
    pub lost: Option<String>,
    /// The names of the nodes of a cluster for whose end the migration would wait.
    pub waits_for: Vec<String>,
}

/// Whether a process uses a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// No process uses it.
    ByNobody,
    /// A process uses it.
    By {
        /// The process id, if known.
        pid: Option<u32>,
    },
}

/// Inspects the file, its log and its lock. Blocks. It changes and creates nothing, except that SQLite may rebuild the
/// index of a log that a crash left behind. It holds the lock only while it checks that the lock is free.
///
/// # Errors
/// [`OpenError::Newer`], [`OpenError::TooOld`], [`OpenError::Unreleased`], [`OpenError::InterruptedRestore`], [`OpenError::ForeignLog`], [`OpenError::Io`] and [`OpenError::Database`], as for opening. A
/// store in use is no error.
pub fn inspect(path: &Path) -> Result<Inspection, OpenError> {
    let held = held(path)?;
    let mut lost = None;
    if held == Held::ByNobody {
        refuse_interrupted_restore(path)?;
        lost = match open(path)? {
            Some(file) => check_at_rest(path, &file)?,
            None => check_gone(path).map(|()| None)?,
        };
    }
    let version = version(path)?;
    version.map_or(Ok(()), Version::check)?;
    Ok(Inspection {
        schema: version.map(|version| version.schema),
        known: known_schema(),
        held,
        lost,
        waits_for: Vec::new(),
    })
}

/// Reads the whole database, and looks for damage (`PRAGMA quick_check`). Blocks, for as long as the disk takes. It writes
/// nothing, and may be used beside a daemon that uses the database.
///
/// # Errors
/// [`OpenError::Damaged`] with the first finding, [`OpenError::Database`].
pub fn check_integrity(path: &Path) -> Result<(), OpenError> {
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.busy_timeout(BUSY)?;
    let found: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found == "ok" { Ok(()) } else { Err(OpenError::Damaged { detail: found }) }
}

/// Inspects a PostgreSQL database. Blocks. It changes and creates nothing.
///
/// # Errors
/// Those of opening the store. A store in use is no error.
pub fn inspect_server(url: &PostgresUrl, limits: PostgresLimits) -> Result<Inspection, OpenError> {
    // A thread of its own: the connection may not be used where asynchronous tasks run.
    let inspect = || inspect_schema(url, &limits.of_statements());
    let found = std::thread::scope(|scope| scope.spawn(inspect).join());
    let found = found.map_err(|_| OpenError::Database("the inspection panicked".into()))??;
    let held = if found.in_use { Held::By { pid: None } } else { Held::ByNobody };
    Ok(Inspection { schema: found.version, known: found.known, held, lost: None, waits_for: found.waits_for })
}

fn version(path: &Path) -> Result<Option<Version>, OpenError> {
    let Some(mut file) = open(path)? else { return Ok(None) };
    let log = with_suffix(path, "-wal");
    if std::fs::metadata(log).is_ok_and(|log| log.len() > 0) {
        return logged_version(path).map(Some);
    }
    // Without a log the header of the file is valid, and reading it leaves no traces. SQLite, "Database File Format",
    // 1.3: the first 16 bytes identify the format, the number at offset 60 is the user version, that at 68 the
    // application id.
    let mut header = Vec::new();
    file.by_ref().take(72).read_to_end(&mut header).map_err(|source| OpenError::Io { path: path.into(), source })?;
    let number = |at: usize| Some(u32::from_be_bytes(*header.get(at..)?.first_chunk()?));
    match (number(60), number(68)) {
        _ if header.is_empty() => Ok(Some(Version::default())),
        (Some(schema), Some(edition)) if header.starts_with(b"SQLite format 3\0") => {
            Ok(Some(Version { schema, edition }))
        }
        _ => Err(OpenError::Damaged { detail: "the file is not a database".to_owned() }),
    }
}

/// The version according to the log.
fn logged_version(path: &Path) -> Result<Version, OpenError> {
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    Ok(Version::of(&conn)?)
}

fn held(path: &Path) -> Result<Held, OpenError> {
    let lock = lock_path(path);
    let Some(mut file) = open(&lock)? else { return database_held(path) };
    match file.try_lock_shared() {
        Ok(()) => database_held(path), // given up again with the file
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid); // only for the message
            Ok(Held::By { pid: pid.trim().parse().ok() })
        }
        Err(TryLockError::Error(source)) => Err(OpenError::Io { path: lock, source }),
    }
}

/// Whether a process has locked the database file itself, perhaps under another name.
fn database_held(path: &Path) -> Result<Held, OpenError> {
    let Some(file) = open(path)? else { return Ok(Held::ByNobody) };
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Ok(Held::By { pid: None }),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(Held::ByNobody), // a file system without such locks has none to meet
    }
}

fn open(path: &Path) -> Result<Option<File>, OpenError> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(OpenError::Io { path: path.into(), source }),
    }
}
