//! Snapshots of a database from before its migrations, and the way back.

use std::path::{Path, PathBuf};

use belay_protocol::UnixMillis;
use rusqlite::Connection;

use super::restore::{Place, copy, keep_former, quiet, rename, replace_database, staging_in};
use super::swap::{Journal, roll_back, swap};
use super::{BackupError, Stop, StoreLock, check_space, directory_of, read, sync_directory, vacuum_into};

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
    vacuum_into(conn, &new, &Stop::default())?;
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

/// The result of putting a snapshot back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutBack {
    /// The snapshot, which stays.
    pub snapshot: PathBuf,
    /// The directory of the former data, if there was any.
    pub former: Option<PathBuf>,
    /// Replies that were waiting for delivery at the time of the snapshot. They are not sent: the newer version has sent
    /// them, or has tried to.
    pub undelivered: u64,
}

/// Puts the newest snapshot from before a migration in the place of the database, which is kept in a new directory. The
/// database starts frozen, as a restored copy does.
///
/// # Errors
/// See [`BackupError`]. The data is as it was, except after [`BackupError::Interrupted`].
pub fn restore_before_migration(place: &Place, now: UnixMillis) -> Result<PutBack, BackupError> {
    let place = &place.without_links()?;
    let database = &place.database;
    let _lock = StoreLock::take(database)?;
    roll_back(database)?;
    let (schema, snapshot) = snapshots(database)?.pop().ok_or_else(|| BackupError::NoSnapshot(database.to_owned()))?;
    read::check_database(&snapshot, &snapshot, &Stop::default())?;
    let directory = directory_of(database);
    check_space(directory, std::fs::metadata(&snapshot).map_err(BackupError::io(&snapshot))?.len())?;
    let mut journal = Journal::default();
    let prepared = prepare(place, &snapshot, schema, now, &mut journal);
    let (former, undelivered) = prepared.inspect_err(|_| journal.remove_directories())?;
    journal.make_relative(directory);
    swap(database, &journal, &mut |from, to| std::fs::rename(from, to))?;
    let _ = std::fs::remove_dir(staging_in(directory, database, now)); // it is empty; the next restore removes what is left
    Ok(PutBack { snapshot, former, undelivered })
}

/// Copies and freezes the snapshot, and lists the renames that put it in place. Returns the directory of the former data
/// and the number of replies that were waiting.
fn prepare(
    place: &Place,
    snapshot: &Path,
    schema: u32,
    now: UnixMillis,
    journal: &mut Journal,
) -> Result<(Option<PathBuf>, u64), BackupError> {
    let new = journal.new_directory(staging_in(directory_of(&place.database), &place.database, now))?.join("belay.db");
    copy(snapshot, &new)?;
    let undelivered = quiet(&new, format!("put back from before the migration to schema {schema}"), now)?;
    let former = keep_former(place, false, now, journal)?;
    replace_database(&place.database, former.as_deref(), new, journal)?;
    Ok((former, undelivered))
}
