//! What keeps the data of a daemon in order: backups, the deletion of what is expired, and the move to another database.
//!
//! **For**: `belay backup` and [`BackupKeeper`] (backups by a schedule in the daemon), [`RetentionJanitor`], and `belay migrate`.
//!
//! **Does not know**: what a run is, or how rows are written: `store` copies, verifies and deletes.
//!
//! Reading order: `backups` (its `keeper` too) → `backup` → `janitor` → `migrate`.

mod backup;
mod backups;
mod janitor;
mod migrate;

pub use backup::{BackupCommand, CreateArgs, ListArgs, RestoreArgs, command as backup};
pub use backups::BackupKeeper;
pub use janitor::{Kept, RetentionJanitor};
pub use migrate::{MigrateArgs, command as migrate};
