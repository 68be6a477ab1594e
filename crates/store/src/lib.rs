//! Persistence: SQLite, in a file or in memory.
//!
//! **For**: whoever needs what the traits of [`belay_protocol::store`] promise. [`SqliteStore::open`] keeps it in a file;
//! [`SqliteStore::in_memory`] keeps it until the process ends, for tests and for trying things out. The SQL is the same, the
//! executor is not: one conformance suite (`tests/suite/conformance`) runs over both.
//!
//! **Does not know**: what a turn is made of, when one begins, or who delivers a reply. It keeps what it is given, in
//! order, once, and says so only when it is true. Only this crate knows SQL.
//!
//! Reading order: `config` → `sqlite/migrations` (the tables) → `sqlite/open` → `sqlite/writer` (the one thread that
//! writes, and how a commit is shared), `sqlite/inline` (the same in memory) → `sqlite/lanes`, `threads`, `words`, `gates`,
//! `edits`, `outbox`, `ledger` (what is written) → `sqlite/prune` (what is deleted) → `sqlite/reads`, `archive` → `inspect`
//! (a look from outside) → `vault` (secrets, sealed).

mod config;
mod error;
mod excerpt;
mod gates;
mod inspect;
mod jobs;
mod limits;
mod notes;
mod notices;
mod queue;
mod routines;
mod sqlite;
mod vault;

pub use config::{StoreConfig, StoreUrl, parse_url};
pub use error::OpenError;
pub use inspect::{Held, Inspection, inspect};
pub use sqlite::{SqliteStore, StoreOptions, WriterStats};
pub use vault::{KEY_BYTES, KeyError, SealedSecrets, SealedVault, VaultKey};
