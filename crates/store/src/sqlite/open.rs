//! Opening a database file: exclusively, with private permissions, and with a known schema.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use rusqlite_migration::{M, Migrations};

use super::at_rest;
use super::mark::{self, Mark};
use crate::edition::edition;
use crate::error::OpenError;
use crate::schema_range::{Program, Step, Stored, decide};
use crate::unfinished::{UNFINISHED, Unfinished};

/// The migrations from an empty file to the schema of this program. Until the first release there is one, which is
/// edited in place.
const MIGRATIONS: &[M<'static>] = &[M::up(SCHEMA)];

/// The oldest schema that this program migrates.
const OLDEST: u32 = 1;

/// The first migration.
const SCHEMA: &str = include_str!("migrations/0001_schema.sql");

/// Distinguishes the editions of the first migration, which all have the same number: FNV-1a of its text, in 31 bits,
/// kept in the file's `application_id`. It is constant once the migration is released.
pub(crate) const EDITION: u32 = edition(SCHEMA.as_bytes());

/// The number of prepared statements that a connection keeps: more than there are different ones.
const STATEMENTS_KEPT: usize = 128;

/// Proof that no other process uses the store: the lock file beside it, and a lock on the database file itself, which
/// also detects another name of the same file. The first one is taken before there is a database, and contains the
/// process id of its owner.
///
/// It is dropped after every connection of the store: closing the database file releases all locks that SQLite holds on
/// it in this process (SQLite, "How To Corrupt An SQLite Database File", 2.2). SQLite's own locks are of another kind
/// (`fcntl`) and do not conflict with this one (`flock`) on any local file system.
pub(crate) struct Locks {
    _beside: Lock,
    database: Option<Lock>,
}

impl Locks {
    /// The open database file. It may be read, and is never closed before the connections.
    pub(super) fn database(&self) -> Option<&File> {
        self.database.as_ref().map(|lock| &lock.0)
    }
}

/// A locked file. It is unlocked before it is closed: the system unlocks a file when its last copy is closed, and a
/// process that another thread is just starting has a copy until it executes its program.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock(); // what remains is unlocked with the last copy
    }
}

/// Locks the file, creates missing parts, and migrates the schema.
pub(crate) fn open_writer(
    path: &Path,
    exclusive: bool,
    unfinished: Unfinished,
) -> Result<(Connection, Option<Locks>), OpenError> {
    create_directory(path)?;
    let beside = exclusive.then(|| lock(path)).transpose()?;
    refuse_interrupted_restore(path)?;
    create_database(path)?;
    // Locked before SQLite opens the file: a process without the lock does not touch it.
    let locks = match beside {
        Some(beside) => Some(Locks { _beside: beside, database: Some(lock_database(path)?) }),
        None => None,
    };
    if let Some(database) = locks.as_ref().and_then(Locks::database) {
        if let Some(lost) = at_rest::check(path, database)? {
            tracing::error!("{lost}");
        }
        Mark::begin(&real(path)).map_err(|source| OpenError::Io { path: with_suffix(path, mark::SUFFIX), source })?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(Duration::from_secs(5))?;
    match Version::of(&conn)?.check() {
        Err(OpenError::Unfinished) if unfinished == Unfinished::Accept => {}
        checked => checked?,
    }
    configure(&conn)?;
    let found = Version::of(&conn)?.schema;
    if (1..known_schema()).contains(&found) {
        super::backup::snapshot_before_migration(&conn, path, known_schema())
            .map_err(|error| OpenError::Snapshot(Box::new(error)))?;
    }
    migrate(&mut conn)?;
    Ok((conn, locks))
}

/// Locks a store without opening it. There may be no database.
pub(crate) fn lock_store(path: &Path) -> Result<Locks, OpenError> {
    let beside = lock(path)?;
    let exists = path.try_exists().map_err(|source| OpenError::Io { path: path.into(), source })?;
    Ok(Locks { _beside: beside, database: exists.then(|| lock_database(path)).transpose()? })
}

/// Refuses a store whose files may be of two stores.
pub(crate) fn refuse_interrupted_restore(path: &Path) -> Result<(), OpenError> {
    match super::backup::is_interrupted(path) {
        Ok(false) => Ok(()),
        Ok(true) => Err(OpenError::InterruptedRestore { journal: super::backup::journal_path(path) }),
        Err(source) => Err(OpenError::Io { path: path.into(), source }),
    }
}

/// Creates a new database beside its final path and moves it there as a whole. That takes one synchronisation instead
/// of one for each step, and a crash in between leaves nothing at the path.
fn create_database(path: &Path) -> Result<(), OpenError> {
    if path.try_exists().map_err(|source| OpenError::Io { path: path.into(), source })? {
        return Ok(());
    }
    at_rest::check_gone(path)?;
    let new = beside(path, ".new");
    let io = |source| OpenError::Io { path: new.clone(), source };
    // Files of an unfinished earlier start are useless, and so are those of a removed database.
    let of_removed = ["-wal", "-shm", mark::SUFFIX].map(|ending| beside(path, ending));
    for left in [new.clone(), beside(&new, "-wal"), beside(&new, "-shm")].into_iter().chain(of_removed) {
        match std::fs::remove_file(&left) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(OpenError::Io { path: left, source });
            }
            _ => {}
        }
    }
    let file = private_file(&new)?;
    let mut conn = Connection::open_with_flags(&new, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    conn.pragma_update(None, "synchronous", "OFF")?;
    // Set while the file is empty: later it would require a rewrite of the whole file.
    conn.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?; // kept in the file
    migrate(&mut conn)?;
    conn.close().map_err(|(_, error)| error)?;
    file.sync_all().map_err(io)?;
    std::fs::rename(&new, path).map_err(io)
}

/// An empty database in memory. Its one connection is the only access to it.
pub(crate) fn open_in_memory() -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_in_memory_with_flags(flags)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    conn.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    conn.pragma_update(None, "synchronous", "OFF")?;
    conn.pragma_update(None, "foreign_keys", false)?; // as on disk
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    migrate(&mut conn)?;
    Ok(conn)
}

/// A further connection that cannot write.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(Duration::from_secs(5))?;
    conn.pragma_update(None, "cache_size", -512)?; // KiB: reads are small, and the system caches the file anyway
    conn.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    Ok(conn)
}

/// Source: SQLite, <https://www.sqlite.org/pragma.html>.
///
/// Three settings have SQLite's defaults, which measurements have confirmed ("Page size, cache and log" in
/// docs/develop/performance.md): pages of 4 KiB, a cache of 2 MiB, and a checkpoint after 1,000 pages of the log.
fn configure(conn: &Connection) -> Result<(), OpenError> {
    conn.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    conn.pragma_update(None, "synchronous", "FULL")?; // the log is synchronised with every commit
    conn.pragma_update(None, "fullfsync", true)?; // on macOS a plain fsync does not reach the disk; elsewhere no effect
    conn.pragma_update(None, "foreign_keys", false)?; // rows are written and deleted together by one thread
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    // The size of the log after a checkpoint, in bytes; one long read may have made it grow.
    conn.query_row("PRAGMA journal_size_limit = 16777216", [], |_| Ok(()))?;
    Ok(())
}

/// The schema of this program: the number of its migrations.
pub(crate) fn known_schema() -> u32 {
    u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX)
}

/// The schemas of this program.
fn program() -> Program {
    Program { oldest: OLDEST, own: known_schema(), oldest_beside: known_schema() }
}

/// The types, names and texts of tables, indexes, triggers and views.
type Objects = std::collections::BTreeSet<(String, String, Option<String>)>;

/// The objects of a schema of this program.
fn objects_of(schema: u32) -> Result<Objects, rusqlite::Error> {
    let mut conn = Connection::open_in_memory()?;
    let version = usize::try_from(schema).unwrap_or(usize::MAX);
    // The migrations are constant and are tested: they have no other errors than those of SQLite.
    match Migrations::from_slice(MIGRATIONS).to_version(&mut conn, version) {
        Err(rusqlite_migration::Error::RusqliteError { err, .. }) => Err(err),
        _ => objects(&conn),
    }
}

fn objects(conn: &Connection) -> Result<Objects, rusqlite::Error> {
    let mut found = conn.prepare("SELECT type, name, sql FROM sqlite_schema")?;
    found.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
}

/// A trigger or a view of a database that its schema does not have, for people. It would act on the statements of the
/// daemon.
pub(crate) fn unknown_object(conn: &Connection, schema: u32) -> Result<Option<String>, rusqlite::Error> {
    let (found, known) = (objects(conn)?, objects_of(schema)?);
    let mut acting = found.difference(&known).filter(|(kind, ..)| kind == "trigger" || kind == "view");
    Ok(acting.next().map(|(kind, name, _)| format!("the {kind} {name:?}")))
}

/// An object of a schema that a database does not have, or has in another form, for people. The daemon would fail in the
/// first statement that uses it.
pub(crate) fn missing_object(conn: &Connection, schema: u32) -> Result<Option<String>, rusqlite::Error> {
    let (found, known) = (objects(conn)?, objects_of(schema)?);
    // The table before its indexes.
    let first = known.difference(&found).min_by_key(|(kind, ..)| kind != "table");
    Ok(first.map(|(kind, name, _)| {
        let is_there = found.iter().any(|(_, other, _)| other == name);
        let what = if is_there { "another form of" } else { "not" };
        format!("{what} the {kind} {name:?}")
    }))
}

/// The path of a database without symbolic links. SQLite puts the log there.
pub(super) fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// The lock file of a store.
pub(crate) fn lock_path(path: &Path) -> PathBuf {
    with_suffix(path, ".lock")
}

/// The path of a file beside the database, with this suffix.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The version of a file's schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    /// The number of migrations; 0: the file is empty.
    pub(crate) schema: u32,
    /// The edition of the first migration.
    pub(crate) edition: u32,
}

impl Version {
    /// Reads the version from a database.
    pub(crate) fn of(conn: &Connection) -> Result<Self, rusqlite::Error> {
        let number = |pragma| conn.pragma_query_value(None, pragma, |row| row.get(0));
        Ok(Self { schema: number("user_version")?, edition: number("application_id")? })
    }

    /// Checks that this program can read the schema or migrate it.
    pub(crate) fn check(self) -> Result<(), OpenError> {
        match self.schema {
            _ if self.edition == UNFINISHED => Err(OpenError::Unfinished),
            0 => Ok(()),
            _ if self.edition != EDITION => Err(OpenError::Unreleased),
            found => may_use(found, program()),
        }
    }
}

/// Checks that a program may use a file of this schema, or migrate it. A file names no older programs that may use it: one
/// daemon has it at a time, and its migration keeps a snapshot for the way back.
fn may_use(found: u32, program: Program) -> Result<(), OpenError> {
    let known = program.own;
    match decide(program, Stored { version: found, oldest_program: found }, &[]) {
        Step::TooNew => Err(OpenError::Newer { found, oldest: found, known }),
        Step::TooOld => Err(OpenError::TooOld { found, oldest: program.oldest, known }),
        Step::Use | Step::Migrate { .. } | Step::Wait { .. } => Ok(()),
    }
}

/// Executes the missing migrations.
fn migrate(conn: &mut Connection) -> Result<(), OpenError> {
    if Version::of(conn)?.schema == 0 {
        conn.pragma_update(None, "application_id", EDITION)?;
    }
    Migrations::from_slice(MIGRATIONS).to_latest(conn).map_err(|error| OpenError::Database(error.into()))
}

fn create_directory(path: &Path) -> Result<(), OpenError> {
    let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) else { return Ok(()) };
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory).map_err(|source| OpenError::Io { path: directory.into(), source })
}

/// Opens or creates a file that only its owner may read. SQLite gives its log the same permissions.
fn private_file(path: &Path) -> Result<File, OpenError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(|source| OpenError::Io { path: path.into(), source })
}

/// Takes the lock that excludes other processes. The system releases it with the process, however that ends, so a free
/// lock proves that the former owner is dead.
fn lock(path: &Path) -> Result<Lock, OpenError> {
    let path = lock_path(path);
    let mut file = private_file(&path)?;
    let io = |source| OpenError::Io { path: path.clone(), source };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid); // only for the message
            return Err(OpenError::Locked { pid: pid.trim().parse().ok() });
        }
        Err(TryLockError::Error(source)) => return Err(io(source)),
    }
    let mut lock = Lock(file);
    lock.0.set_len(0).map_err(io)?;
    writeln!(lock.0, "{}", std::process::id()).map_err(io)?;
    Ok(lock)
}

/// Locks the database file itself, under whatever name it was opened.
fn lock_database(path: &Path) -> Result<Lock, OpenError> {
    // For writing, if that is allowed: an overlay file system replaces a file when it is first opened like that.
    let file = OpenOptions::new().read(true).write(true).open(path).or_else(|_| File::open(path));
    let file = file.map_err(|source| OpenError::Io { path: path.into(), source })?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked { pid: None }),
        Err(TryLockError::Error(error)) => {
            tracing::warn!(%error, path = %path.display(), "the database file cannot be locked; only its lock file is");
            Ok(Lock(file))
        }
    }
}

/// The path with another ending.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_start_left_half_made_is_made_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("belay.db");
        std::fs::write(folder.path().join("belay.db.new"), "half").expect("writable");
        let (conn, _lock) = open_writer(&path, true, Unfinished::Refuse).expect("opens");
        let version: u32 = conn.pragma_query_value(None, "user_version", |row| row.get(0)).expect("readable");
        assert_eq!(version as usize, MIGRATIONS.len());
        assert!(!folder.path().join("belay.db.new").exists());
    }

    #[test]
    fn a_file_is_used_by_programs_that_have_or_migrate_its_schema() {
        let program = Program { oldest: 2, own: 3, oldest_beside: 3 };
        let words = |found| may_use(found, program).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(words(1).contains("schema 1") && words(1).contains("earlier version"), "{}", words(1));
        assert_eq!([words(2), words(3)], ["", ""]);
        assert!(words(4).contains("schema 4 or newer") && words(4).contains("has schema 3"), "{}", words(4));
    }

    #[test]
    fn the_log_of_a_database_that_was_taken_away_is_named_and_not_played_over_a_new_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, log) = (folder.path().join("belay.db"), folder.path().join("belay.db-wal"));
        let (conn, lock) = open_writer(&path, true, Unfinished::Refuse).expect("opens");
        conn.execute_batch("CREATE TABLE extra (x); INSERT INTO extra VALUES (1);").expect("writes");
        let bytes = std::fs::read(&log).expect("a log");
        drop((conn, lock));
        std::fs::remove_file(&path).expect("taken away");
        std::fs::write(&log, bytes).expect("as a kill leaves it");
        let refused = open_writer(&path, true, Unfinished::Refuse).err();
        assert!(matches!(&refused, Some(OpenError::ForeignLog { log: named, .. }) if *named == log), "{refused:?}");
        assert!(!path.exists());
        std::fs::rename(&log, folder.path().join("kept")).expect("moved away");
        let (conn, _lock) = open_writer(&path, true, Unfinished::Refuse).expect("opens anew");
        let check: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("readable");
        assert_eq!(check, "ok");
    }

    #[cfg(unix)]
    #[test]
    fn every_name_of_a_database_that_is_in_use_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("belay.db");
        let (conn, locks) = open_writer(&path, true, Unfinished::Refuse).expect("opens");
        std::fs::create_dir(folder.path().join("other")).expect("a folder");
        let names = ["symbolic.db", "hard.db", "other/../belay.db", "belay.db"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink(&path, &names[0]).expect("a link");
        std::fs::hard_link(&path, &names[1]).expect("a link");
        std::fs::remove_file(lock_path(&path)).expect("a script that tidies up");
        for name in &names {
            // The locks of the first process do not matter here: nothing is written any more.
            let refused = open_writer(name, true, Unfinished::Refuse).err();
            assert!(matches!(refused, Some(OpenError::Locked { .. })), "{}: {refused:?}", name.display());
        }
        drop((conn, locks));
        drop(open_writer(&names[1], true, Unfinished::Refuse).expect("nobody has it any more"));
    }

    #[test]
    fn a_copy_of_the_locked_files_does_not_keep_the_lock() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("belay.db");
        let (conn, locks) = open_writer(&path, true, Unfinished::Refuse).expect("opens");
        let locks = locks.expect("locked");
        // A process that is just being started has such copies.
        let copies = [Some(&locks._beside), locks.database.as_ref()].map(|lock| lock.map(|lock| lock.0.try_clone()));
        drop((conn, locks));
        drop(open_writer(&path, true, Unfinished::Refuse).expect("opens again"));
        drop(copies);
    }

    #[test]
    fn the_migrations_fit_together() {
        Migrations::from_slice(MIGRATIONS).validate().expect("every migration applies to an empty database");
    }
}
