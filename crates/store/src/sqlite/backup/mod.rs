//! Backups: one file with the database, the files of messages, the settings files and, on request, the key of the vault.
//!
//! The file is a compressed tar. Its first entry is the [`Manifest`], with the size and the SHA-256 digest of every other
//! entry. So a reader knows all sizes before it extracts anything. The database in it is a snapshot that SQLite makes
//! (`VACUUM INTO`), never a copy of the live files. Secrets of the vault are in the database, sealed.
//!
//! Everything here blocks. Reading order: `manifest` → `create` → `read` (verification and extraction) → `swap` →
//! `restore` → `migration`.

mod create;
mod links;
mod manifest;
mod migration;
mod read;
mod restore;
mod stop;
mod swap;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::error::OpenError;

pub use create::{Created, Sources, create, sweep};
pub use manifest::{Entry, EntryName, FORMAT, Label, Manifest, Reason};
pub use migration::{PutBack, restore_before_migration, snapshots};
pub use read::{manifest_of, verify};
pub use restore::{Place, Restored, restore, roll_back};
pub use stop::Stop;

pub(crate) use migration::snapshot_before_migration;
pub(crate) use swap::{is_interrupted, journal_path};

/// The error of a backup. The data is as it was.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The backup is damaged, truncated, or no backup of Belay.
    #[error("{} is not a valid backup: {detail}", path.display())]
    Damaged {
        /// The backup.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// A newer version of Belay has written the backup.
    #[error("{} was written by a newer belay ({detail}): restore it by that version", path.display())]
    Newer {
        /// The backup.
        path: PathBuf,
        /// The version of the format or the schema.
        detail: String,
    },
    /// There is no database to back up.
    #[error("there is no database at {}: start the daemon once, or set store.url to the database", .0.display())]
    NoDatabase(PathBuf),
    /// The disk has too little space.
    #[error(
        "{} has {free} bytes free, and {needed} bytes are needed: free some space, or choose another directory",
        path.display()
    )]
    NoSpace {
        /// The directory.
        path: PathBuf,
        /// The free bytes.
        free: u64,
        /// The needed bytes.
        needed: u64,
    },
    /// The target of a backup exists already.
    #[error("{} exists already: choose another file", .0.display())]
    Exists(PathBuf),
    /// The directory to restore to has files already.
    #[error(
        "{} is not empty: choose an empty directory, or add --force, which keeps the present data beside the restored",
        .0.display()
    )]
    NotEmpty(PathBuf),
    /// The database to replace is a symbolic link. The log and the files of messages may be beside the link or its
    /// target.
    #[error("{} is a symbolic link: set store.url to the file that it leads to, and try again", .0.display())]
    Link(PathBuf),
    /// No snapshot of a migration exists.
    #[error("there is no snapshot beside {}: no migration has changed it", .0.display())]
    NoSnapshot(PathBuf),
    /// A restore was interrupted, and its rollback is not done.
    #[error("the restore of {} is half done{detail}. Run `belay backup restore --roll-back`", journal.display())]
    Interrupted {
        /// The journal of the restore.
        journal: PathBuf,
        /// The causes; empty if they are unknown.
        detail: String,
    },
    /// The caller has stopped the work.
    #[error("the backup was stopped; nothing of it is left")]
    Stopped,
    /// The database could not be used.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl BackupError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    fn damaged(path: &Path, detail: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), detail: detail.into() }
    }
}

impl From<rusqlite::Error> for BackupError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Open(error.into())
    }
}

/// Reports the progress of long work: the done bytes, and all bytes.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// The lock of a store without a daemon: no process can start on this database while it lives.
pub struct StoreLock {
    _locks: crate::sqlite::Locks,
}

impl StoreLock {
    /// Locks the store. Neither opens nor migrates the database.
    ///
    /// # Errors
    /// [`OpenError::Locked`] if a process uses the store; [`OpenError::Io`].
    pub fn take(database: &Path) -> Result<Self, OpenError> {
        Ok(Self { _locks: crate::sqlite::lock_store(database)? })
    }
}

/// Writes a consistent copy of the database, which may be in use, to a new file. The copy includes the write-ahead log.
///
/// `VACUUM INTO` keeps the values of `INTEGER PRIMARY KEY` columns. Every table of the schema has such a column or no row
/// ids (SQLite, "VACUUM", 3).
fn snapshot(database: &Path, to: &Path, stop: &Stop) -> Result<(), BackupError> {
    let conn = crate::sqlite::open_reader(database)?;
    vacuum_into(&conn, to, stop)
}

fn vacuum_into(conn: &Connection, to: &Path, stop: &Stop) -> Result<(), BackupError> {
    let text = to.to_str().ok_or_else(|| {
        BackupError::io(to)(io::Error::new(io::ErrorKind::InvalidInput, "the path is not valid UTF-8"))
    })?;
    stop.interruptible(conn, || conn.execute("VACUUM INTO ?1", [text]))??;
    private(to)
}

/// The beginning of the name of a temporary file or directory of this database: another store in the same directory has
/// other names. The rest has no hyphen.
fn temporary(beginning: &str, database: &Path) -> String {
    format!("{beginning}{}-", database.file_name().unwrap_or_default().to_string_lossy())
}

/// Whether a file or directory has a name that begins as [`temporary`] says.
fn is_temporary(name: &std::ffi::OsStr, beginning: &str, database: &Path) -> bool {
    name.to_string_lossy().strip_prefix(&temporary(beginning, database)).is_some_and(|rest| !rest.contains('-'))
}

/// Whether there is anything at a path. A symbolic link counts, wherever it leads: a rename moves the link itself.
fn is_there(path: &Path) -> Result<bool, BackupError> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(BackupError::io(path)(error)),
    }
}

/// Lets only the owner read a file.
fn private(path: &Path) -> Result<(), BackupError> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(BackupError::io(path))
}

/// Makes the names in a directory durable.
fn sync_directory(path: &Path) -> Result<(), BackupError> {
    std::fs::File::open(path).and_then(|directory| directory.sync_all()).map_err(BackupError::io(path))
}

/// Checks that a directory's file system has this many free bytes.
fn check_space(directory: &Path, needed: u64) -> Result<(), BackupError> {
    let stat = rustix::fs::statvfs(directory).map_err(|error| BackupError::io(directory)(error.into()))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free < needed {
        return Err(BackupError::NoSpace { path: directory.to_owned(), free, needed });
    }
    Ok(())
}

/// Makes a directory and its ancestors, for this user alone.
fn make_directory(path: &Path) -> Result<(), BackupError> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(BackupError::io(path))
}

/// The directory of a file; `.` for a bare name.
fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
