//! Opening a database file: alone, private, and of a schema that this program knows.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use rusqlite_migration::{M, Migrations};

use crate::error::OpenError;

const MIGRATIONS: &[M<'static>] = &[
    M::up(include_str!("migrations/0001.sql")),
    M::up(include_str!("migrations/0002.sql")),
    M::up(include_str!("migrations/0003.sql")),
    M::up(include_str!("migrations/0004.sql")),
    M::up(include_str!("migrations/0005.sql")),
    M::up(include_str!("migrations/0006.sql")),
    M::up(include_str!("migrations/0007.sql")),
    M::up(include_str!("migrations/0008.sql")),
    M::up(include_str!("migrations/0009.sql")),
    M::up(include_str!("migrations/0010.sql")),
    M::up(include_str!("migrations/0011.sql")),
    M::up(include_str!("migrations/0012.sql")),
    M::up(include_str!("migrations/0013.sql")),
];

/// Prepared statements that a connection keeps: more than there are different ones.
const STATEMENTS_KEPT: usize = 128;

/// Locks the file, creates what is missing and brings the schema up to date.
pub(super) fn open_writer(path: &Path) -> Result<(Connection, File), OpenError> {
    create_directory(path)?;
    let lock = lock(path)?;
    create_database(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(Duration::from_secs(5))?;
    refuse_newer(&conn)?;
    configure(&conn)?;
    Migrations::from_slice(MIGRATIONS).to_latest(&mut conn).map_err(|error| OpenError::Sqlite(error.into()))?;
    Ok((conn, lock))
}

/// Makes a new database beside its place and moves it there whole: one synchronisation instead of one for each step of
/// its making, and a crash in between leaves nothing at its place.
fn create_database(path: &Path) -> Result<(), OpenError> {
    if path.try_exists().map_err(|source| OpenError::Io { path: path.into(), source })? {
        return Ok(());
    }
    let new = beside(path, ".new");
    let io = |source| OpenError::Io { path: new.clone(), source };
    // What an earlier start did not finish is of no use; and the log of a database that somebody took away must not be
    // played over the new one.
    for left in [new.clone(), beside(&new, "-wal"), beside(&new, "-shm"), beside(path, "-wal"), beside(path, "-shm")] {
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
    // Before there is anything in it: later it would need the whole file to be written anew.
    conn.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?; // kept in the file
    Migrations::from_slice(MIGRATIONS).to_latest(&mut conn).map_err(|error| OpenError::Sqlite(error.into()))?;
    conn.close().map_err(|(_, error)| error)?;
    file.sync_all().map_err(io)?;
    std::fs::rename(&new, path).map_err(io)
}

/// A further connection that cannot write.
pub(super) fn open_reader(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(Duration::from_secs(5))?;
    conn.pragma_update(None, "cache_size", -512)?; // KiB: reads are small, and the system caches the file anyway
    conn.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    Ok(conn)
}

/// SQLite: <https://www.sqlite.org/pragma.html>.
fn configure(conn: &Connection) -> Result<(), OpenError> {
    conn.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    conn.pragma_update(None, "synchronous", "FULL")?; // the log is synchronised with every commit
    conn.pragma_update(None, "fullfsync", true)?; // on macOS a plain fsync does not reach the disk; elsewhere no effect
    conn.pragma_update(None, "foreign_keys", false)?; // rows are written and deleted together by one thread
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    // Bytes that the log keeps after a checkpoint; one long read may have made it grow.
    conn.query_row("PRAGMA journal_size_limit = 16777216", [], |_| Ok(()))?;
    Ok(())
}

/// The schema of this program: the number of its migrations.
pub(crate) fn known_schema() -> u32 {
    u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX)
}

/// The file whose lock says who has the store.
pub(crate) fn lock_path(path: &Path) -> PathBuf {
    with_suffix(path, ".lock")
}

/// A file beside the database, named like it.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn refuse_newer(conn: &Connection) -> Result<(), OpenError> {
    let known = known_schema();
    let found: u32 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > known { Err(OpenError::Newer { found, known }) } else { Ok(()) }
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

/// Takes the lock that says that no other process has the store. The system gives it up with the process, however that
/// ends, so a lock that can be taken proves the former owner dead.
fn lock(path: &Path) -> Result<File, OpenError> {
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
    file.set_len(0).map_err(io)?;
    writeln!(file, "{}", std::process::id()).map_err(io)?;
    Ok(file)
}

/// The file of that name with an ending of its own.
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
        let (conn, _lock) = open_writer(&path).expect("opens");
        let version: u32 = conn.pragma_query_value(None, "user_version", |row| row.get(0)).expect("readable");
        assert_eq!(version as usize, MIGRATIONS.len());
        assert!(!folder.path().join("belay.db.new").exists());
    }

    #[test]
    fn the_log_of_a_database_that_was_taken_away_is_not_played_over_a_new_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, log) = (folder.path().join("belay.db"), folder.path().join("belay.db-wal"));
        let (conn, lock) = open_writer(&path).expect("opens");
        conn.execute_batch("CREATE TABLE extra (x); INSERT INTO extra VALUES (1);").expect("writes");
        let bytes = std::fs::read(&log).expect("a log");
        drop((conn, lock));
        std::fs::remove_file(&path).expect("taken away");
        std::fs::write(&log, bytes).expect("as a kill leaves it");
        let (conn, _lock) = open_writer(&path).expect("opens anew");
        let check: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("readable");
        assert_eq!(check, "ok");
    }

    #[test]
    fn the_migrations_fit_together() {
        Migrations::from_slice(MIGRATIONS).validate().expect("every migration applies to an empty database");
    }
}
