//! A store that could not be opened.

use std::error::Error;
use std::io;
use std::path::PathBuf;

/// Why a store could not be opened. Nothing has been changed on disk except, perhaps, that directories, an empty file
/// and a lock file exist now.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it. Stop that one first, or give this one a file of its own.
    #[error(
        "the store is in use by another belay{}: stop that one first, or set store.url to another file",
        pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    Locked {
        /// The process that holds the lock, when it has said so.
        pid: Option<u32>,
    },
    /// A later Belay has written it, and this one would not understand what it finds.
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
    /// A Belay from before the first release has written it, with tables that were edited since.
    #[error(
        "the store was written by an unreleased belay, and its schema is not supported any more: move the file and those beside \
         it (-wal, -shm) away, and the next start makes a new one; or set store.url to another file"
    )]
    Unreleased,
    /// A directory, the file or its lock could not be made or opened.
    #[error("{}: {source}", path.display())]
    Io {
        /// What could not be opened.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// SQLite refuses it: it is damaged, or no database at all.
    #[error("the store cannot be used: {0}")]
    Sqlite(#[source] Box<dyn Error + Send + Sync>),
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error.into())
    }
}
