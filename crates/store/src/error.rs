//! The error of opening a store.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use rusqlite::ErrorCode;

/// The next step after a damage.
pub(crate) const RESTORE: &str =
    "End belay and restore a backup: `belay backup list` shows them, `belay backup restore FILE --force` restores one";

/// The reason for which a store could not be opened. The disk is unchanged, except that directories, an empty file and
/// a lock file may have been created.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process uses the store. Stop that process first, or configure another file.
    #[error(
        "the store is in use by another belay{}: stop that one first, or set store.url to another store",
        pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    Locked {
        /// The process that holds the lock, if known.
        pid: Option<u32>,
    },
    /// A living node of the cluster has the name of this one.
    #[error(
        "a node with the name {name} is a member of the cluster already (version {version}, its lease has {seconds} s left): \
         stop it, set cluster.name to another name, or, if it has crashed, start again after that time"
    )]
    NodeName {
        /// The name.
        name: String,
        /// The version of the other node.
        version: String,
        /// The rest of its lease, in seconds. It may be renewed.
        seconds: u64,
    },
    /// A migration waits for the end of living nodes of the cluster that could not use the store afterwards. Try again.
    #[error(
        "the migration of the store from schema {found} to {own} has to wait: the nodes {nodes} of the cluster are too old for \
         that schema; stop them, or use a belay of their version"
    )]
    OlderNodes {
        /// The schema of the store.
        found: u32,
        /// The schema of this program.
        own: u32,
        /// The names and versions of the nodes.
        nodes: String,
    },
    /// A newer version of Belay has migrated the store, and this version does not understand it.
    #[error(
        "the store has schema {found}, which needs a belay with schema {oldest} or newer, and this belay has schema {known}: use \
         the newer belay that migrated the store (`belay upgrade check` compares both), restore a backup from before its \
         migration, or set store.url to another store"
    )]
    Newer {
        /// The schema of the store.
        found: u32,
        /// The schema of the oldest program that may use the store.
        oldest: u32,
        /// The schema of this program.
        known: u32,
    },
    /// This version of Belay has no migration from the schema of the store.
    #[error(
        "the store has schema {found}, and this belay (schema {known}) migrates stores of schema {oldest} or newer: start an \
         earlier version once that migrates schema {found}, and then this one"
    )]
    TooOld {
        /// The schema of the store.
        found: u32,
        /// The oldest schema that this program migrates.
        oldest: u32,
        /// The schema of this program.
        known: u32,
    },
    /// A version of Belay from before the first release has written the store, with tables that were edited since.
    #[error(
        "the store was written by an unreleased belay, and its schema is not supported any more: move the file and those beside \
         it (-wal, -shm, -mark) away, and the next start makes a new one; or set store.url to another file"
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
    /// A migration into the store was interrupted, or its verification has failed: a part of the data may be missing.
    #[error(
        "the store is the target of a `belay migrate` that was not finished: run that command again, which empties the \
         store and copies everything anew, or set store.url to another one"
    )]
    Unfinished,
    /// The write-ahead log beside the database is not of it. SQLite would apply it.
    #[error(
        "the write-ahead log {} does not belong to {} ({detail}): nothing was changed. Put the file back that belongs to the \
         other, or move the log and the files that end in -shm and -mark away from the database, or restore a backup (`belay \
         backup restore FILE --force`)",
        log.display(),
        database.display()
    )]
    ForeignLog {
        /// The log.
        log: PathBuf,
        /// The database.
        database: PathBuf,
        /// How it is known.
        detail: &'static str,
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
    /// The database file is damaged, or is no database.
    #[error("the store is damaged ({detail}). {RESTORE}")]
    Damaged {
        /// The finding.
        detail: String,
    },
    /// The database cannot be used: the server is not reachable or refuses the
    /// login. The text of the cause of a server has the next step.
    #[error("the store cannot be used: {0}")]
    Database(#[source] Box<dyn Error + Send + Sync>),
    /// The PostgreSQL schema was written by a version of Belay from before the first release, with tables that were edited
    /// since.
    #[error(
        "the store was written by an unreleased belay, and its schema is not supported any more: drop the schema {schema} \
         of the database if nothing in it is needed, or use another one (schema=NAME in store.url)"
    )]
    PostgresUnreleased {
        /// The name of the schema.
        schema: String,
    },
    /// The PostgreSQL schema has tables of other programs.
    #[error(
        "the schema {schema} of the database has tables that are not Belay's ({tables}): use an empty schema \
         (schema=NAME in store.url), or move those tables to another one"
    )]
    PostgresForeign {
        /// The name of the schema.
        schema: String,
        /// The names of some of the tables.
        tables: String,
    },
    /// Tables of the PostgreSQL schema are missing.
    #[error(
        "the schema {schema} of the database lacks the tables {tables}: restore the database from its backup, or use \
         another schema (schema=NAME in store.url)"
    )]
    PostgresIncomplete {
        /// The name of the schema.
        schema: String,
        /// The names of some of the missing tables.
        tables: String,
    },
    /// Tables of the PostgreSQL schema are unlogged: a crash of the server would empty them.
    #[error(
        "the schema {schema} of the database has unlogged tables, which a crash of the server empties ({tables}): \
         run ALTER TABLE {schema}.NAME SET LOGGED for each"
    )]
    PostgresUnlogged {
        /// The name of the schema.
        schema: String,
        /// The names of some of the tables.
        tables: String,
    },
    /// A table of the PostgreSQL schema that always has one row has none, or more.
    #[error(
        "the table {table} of the schema {schema} of the database has not its one row, so other tables may be damaged too: \
         restore the database from its backup, or use another schema (schema=NAME in store.url)"
    )]
    PostgresEmptied {
        /// The name of the schema.
        schema: String,
        /// The name of the table.
        table: String,
    },
}

/// Whether the file is damaged, or is no database.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        if is_damage(&error) {
            return Self::Damaged { detail: error.to_string() };
        }
        Self::Database(error.into())
    }
}
