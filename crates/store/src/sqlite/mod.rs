//! A SQLite database: its file, its schema, and its backups.

pub mod backup;
mod open;

pub(crate) use self::open::{
    EDITION, Locks, Version, known_schema, lock_path, lock_store, open_in_memory, open_reader, open_writer,
    refuse_interrupted_restore, triggers_and_views_of, unknown_object, with_suffix,
};
