//! Persistence: SQLite, in a file or in memory, or PostgreSQL.
//!
//! **For**: implementing the ports of [`belay_protocol::store`]. [`SqlStore::open`] stores data in a file;
//! [`SqlStore::in_memory`] stores it until the process ends, for tests and for trials. Both use the same SQL, but
//! another executor: one conformance suite (`tests/suite/conformance`) runs over both.
//!
//! **Does not know**: what a turn is made of, when one begins, or who delivers a reply. It stores what it gets, in
//! order and once, and confirms a write only when it is true. Only this crate knows SQL.
//!
//! Reading order: `config` → `sqlite/migrations` (the tables) → `schema_range` (who may use and migrate them), `sqlite/open`, `sqlite/at_rest` and `sqlite/guard` (files that are not what they were) → `value`, `sql/connection`, `sql/tx` (statements on
//! whatever database) → `sql/writer` (the one thread that writes, and the sharing of commits), `postgres` and `sql/pg` (the other engine), `sql/inline` (the same in
//! memory) → `sql/lane_ports`, `work`, `ports` (the ports) → `sql/lanes`, `acceptance`, `runs`, `threads`, `edits`, `outbox`, `ledger` (writes)
//! → `sql/prune` (deletions) → `sql/reads`, `archive` → `inspect` (a store in use by another process) → `vault` (encrypted
//! secrets) → `parts` → `blobs` (files of messages) → `outputs` (long outputs of tools) → `sqlite/backup` → `transfer` (from one engine to the other), `unfinished` → [`lease`], `hints` and `postgres/hints`, `sql/nodes`,
//! `work_leases`, `orders`, `node_mail` (several daemons over one database).

mod approvals;
mod blobs;
mod config;
mod edition;
mod error;
mod excerpt;
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "a store that is alone exchanges no hints"))]
mod hints;
mod inspect;
mod jobs;
mod limits;
mod notes;
mod notices;
mod outputs;
mod parts;
#[cfg_attr(not(feature = "postgres"), path = "no_postgres.rs")]
mod postgres;
mod queue;
mod routines;
mod schema_range;
mod sql;
mod sqlite;
pub mod transfer;
mod unfinished;
mod value;
mod vault;

pub use blobs::Blobs;
pub use config::{StoreConfig, StoreUrl, parse_url};
pub use error::OpenError;
pub use hints::Hearing;
pub use inspect::{Held, Inspection, check_integrity, inspect, inspect_server};
pub use outputs::SqlOutputs;
pub use postgres::{PostgresUrl, lease};
pub use sql::{ClusterOptions, DatabaseLoss, FileSizes, PostgresLimits, SqlStore, StoreOptions, StoreStats};
pub use sqlite::backup;
pub use vault::{KEY_BYTES, KeyError, SealedSecrets, SealedVault, VaultKey};
