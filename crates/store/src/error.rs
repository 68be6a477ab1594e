//! The error of opening a store.

use std::error::Error;
use std::io;
use std::path::PathBuf;

/// The reason for which a store could not be opened. The disk is unchanged, except that directories, an empty file and
/// a lock file may have been created.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process uses the store. Stop that process first, or configure another file.
    #[error(
        "the store is in use by another belay{}: stop that one first, or set store.url to another file",
        pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    Locked {
        /// The process that holds the lock, if known.
        pid: Option<u32>,
    },
    /// A newer version of Belay has written the store, and this version cannot read it.
    #[error(
        "the store has schema {found}, and this belay knows schemas up to {known}: use the newer belay that wrote it, \
         or set store.url to another file"
    )]
    Newer {
        /// The schema of the file.
        found: u32,
        /// The newest schema of this program.
        known: u32,
    },
    /// A version of Belay from before the first release has written the store, with tables that were edited since.
    #[error(
        "the store was written by an unreleased belay, and its schema is not supported any more: move the file and those beside \
         it (-wal, -shm) away, and the next start makes a new one; or set store.url to another file"
    )]
    Unreleased,
    /// A crash has interrupted a restore of the store: its files may be of two stores.
    #[error(
        "a restore of the store was interrupted ({} is left): run `belay backup restore --roll-back`, which puts the former \
         files back, or repeat the restore with --force",
        journal.display()
    )]
    InterruptedRestore {
        /// The journal of the restore.
        journal: PathBuf,
    },
    /// A directory, the file or its lock could not be created or opened.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path of it.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The snapshot that every migration begins with could not be written. The database is not migrated.
    #[error("the store is not migrated, because its snapshot could not be written: {0}")]
    Snapshot(#[source] Box<dyn Error + Send + Sync>),
    /// SQLite rejects the file: it is damaged or is no database.
    #[error("the store cannot be used: {0}")]
    Sqlite(#[source] Box<dyn Error + Send + Sync>),
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error.into())
    }
}
