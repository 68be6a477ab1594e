//! Snapshots of a database from before its migrations, and the way back.

use std::path::{Path, PathBuf};

use belay_protocol::UnixMillis;
use rusqlite::Connection;

use super::restore::{keep_former, rename, rename_if_there};
use super::{BackupError, StoreLock, check_space, directory_of, read, sync_directory, vacuum_into};

/// The middle of the name of a snapshot: `belay.db.before-v2` is from before the migration to schema 2.
const BEFORE: &str = ".before-v";

/// Snapshots that are kept.
const KEPT: usize = 2;

/// Writes the snapshot from before the migration to this schema, and removes all but the newest two.
///
/// # Errors
/// See [`BackupError`]. The database must not be migrated then.
pub(crate) fn snapshot_before_migration(conn: &Connection, database: &Path, schema: u32) -> Result<(), BackupError> {
    let snapshot = crate::sqlite::with_suffix(database, &format!("{BEFORE}{schema}"));
    let new = crate::sqlite::with_suffix(&snapshot, ".new");
    let directory = directory_of(database);
    check_space(directory, std::fs::metadata(database).map_err(BackupError::io(database))?.len())?;
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(BackupError::io(&new)(error)),
        _ => {}
    }
    vacuum_into(conn, &new)?;
    std::fs::File::open(&new).and_then(|file| file.sync_all()).map_err(BackupError::io(&new))?;
    rename(&new, &snapshot)?;
    sync_directory(directory)?;
    for (_, old) in snapshots(database)?.into_iter().rev().skip(KEPT) {
        std::fs::remove_file(&old).map_err(BackupError::io(&old))?;
    }
    Ok(())
}

/// The snapshots of a database, each with the schema that it was migrated to, in ascending order.
///
/// # Errors
/// [`BackupError::Io`]
pub fn snapshots(database: &Path) -> Result<Vec<(u32, PathBuf)>, BackupError> {
    let directory = directory_of(database);
    let prefix = format!("{}{BEFORE}", database.file_name().unwrap_or_default().to_string_lossy());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(BackupError::io(directory))? {
        let entry = entry.map_err(BackupError::io(directory))?;
        let schema = entry.file_name().to_str().and_then(|name| name.strip_prefix(&prefix)?.parse().ok());
        found.extend(schema.map(|schema| (schema, entry.path())));
    }
    found.sort();
    Ok(found)
}

/// Puts the newest snapshot from before a migration in the place of the database, which is kept in a new directory.
/// Returns the snapshot and that directory. The snapshot stays.
///
/// # Errors
/// See [`BackupError`]; the data is as it was.
pub fn restore_before_migration(database: &Path, now: UnixMillis) -> Result<(PathBuf, Option<PathBuf>), BackupError> {
    let _lock = StoreLock::take(database)?;
    let newest = snapshots(database)?.pop().ok_or_else(|| BackupError::NoSnapshot(database.to_owned()))?;
    read::check_database(&newest.1, &newest.1)?;
    let directory = directory_of(database);
    check_space(directory, std::fs::metadata(&newest.1).map_err(BackupError::io(&newest.1))?.len())?;
    let new = crate::sqlite::with_suffix(database, ".restored");
    std::fs::copy(&newest.1, &new).map_err(BackupError::io(&new))?;
    super::private(&new)?;
    std::fs::File::open(&new).and_then(|file| file.sync_all()).map_err(BackupError::io(&new))?;
    let former = keep_former(database, now.0)?;
    if let Some(former) = &former {
        for suffix in ["-wal", "-shm"] {
            let log = crate::sqlite::with_suffix(database, suffix);
            rename_if_there(&log, &former.join(log.file_name().unwrap_or_default()))?;
        }
    }
    rename(&new, database)?;
    sync_directory(directory)?;
    Ok((newest.1, former))
}
