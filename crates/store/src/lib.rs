//! Persistence: SQLite and in memory, behind the same ports.
//!
//! **For**: whoever needs what the traits of [`belay_protocol::store`] promise. [`SqliteStore`] keeps it on disk;
//! [`MemoryStore`] keeps it until the process ends, for tests and for trying things out. One conformance suite
//! (`tests/conformance`) runs over both.
//!
//! **Does not know**: what a turn is made of, when one begins, or who delivers a reply. It keeps what it is given, in
//! order, once, and says so only when it is true. Only this crate knows SQL.
//!
//! Reading order: `config` → `sqlite/migrations` (the tables) → `sqlite/open` → `sqlite/writer` (the one thread that
//! writes, and how a commit is shared) → `sqlite/lanes`, `threads`, `words`, `gates`, `edits`, `outbox`, `ledger`
//! (what is written) → `sqlite/prune` (what is deleted) → `sqlite/reads`, `archive` → `inspect` (a look from outside) → `vault` (secrets, sealed) → `memory`.

mod config;
mod error;
mod excerpt;
mod gates;
mod inspect;
mod jobs;
mod limits;
mod memory;
mod notes;
mod notices;
mod queue;
mod routines;
mod sqlite;
mod vault;

pub use config::{StoreConfig, StoreUrl, parse_url};
pub use error::OpenError;
pub use inspect::{Held, Inspection, inspect};
pub use memory::MemoryStore;
pub use sqlite::{SqliteStore, StoreOptions, WriterStats};
pub use vault::{KEY_BYTES, KeyError, SealedSecrets, SealedVault, VaultKey};
