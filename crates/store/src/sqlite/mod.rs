//! A SQLite database: its file, its schema, its backups, and the guard of its files.

mod at_rest;
pub mod backup;
mod guard;
mod log;
mod mark;
mod open;
mod words;

pub(crate) use self::at_rest::{check as check_at_rest, check_gone};
pub(crate) use self::guard::{FileGuard, Trouble};
pub(crate) use self::mark::SUFFIX as MARK;
pub(crate) use self::open::{
    EDITION, Locks, Version, known_schema, lock_path, lock_store, missing_object, open_in_memory, open_reader,
    open_writer, refuse_interrupted_restore, unknown_object, with_suffix,
};
pub(crate) use self::words::explain;
