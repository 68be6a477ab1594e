//! Persistence: SQLite, in a file or in memory.
//!
//! **For**: implementing the ports of [`belay_protocol::store`]. [`SqliteStore::open`] stores data in a file;
//! [`SqliteStore::in_memory`] stores it until the process ends, for tests and for trials. Both use the same SQL, but
//! another executor: one conformance suite (`tests/suite/conformance`) runs over both.
//!
//! **Does not know**: what a turn is made of, when one begins, or who delivers a reply. It stores what it gets, in
//! order and once, and confirms a write only when it is true. Only this crate knows SQL.
//!
//! Reading order: `config` → `sqlite/migrations` (the tables) → `sqlite/open` → `sqlite/writer` (the one thread that
//! writes, and the sharing of commits), `sqlite/inline` (the same in memory) → `sqlite/lane_ports`, `work`, `ports`
//! (the ports) → `sqlite/lanes`, `threads`, `gates`, `edits`, `outbox`, `ledger` (writes) → `sqlite/prune` (deletions)
//! → `sqlite/reads`, `archive` → `inspect` (a store in use by another process) → `vault` (encrypted secrets) → `blobs` (files of messages) → `sqlite/backup`.

mod approvals;
mod blobs;
mod config;
mod error;
mod excerpt;
mod inspect;
mod jobs;
mod limits;
mod notes;
mod notices;
mod queue;
mod routines;
mod sqlite;
mod vault;

pub use blobs::Blobs;
pub use config::{StoreConfig, StoreUrl, parse_url};
pub use error::OpenError;
pub use inspect::{Held, Inspection, inspect};
pub use sqlite::{FileSizes, SqliteStore, StoreOptions, StoreStats, backup};
pub use vault::{KEY_BYTES, KeyError, SealedSecrets, SealedVault, VaultKey};
