//! The contents of a backup, and the keeper that makes backups in the daemon.

mod keeper;

use std::path::PathBuf;

use belay_parts::message_files;
use belay_program::environment::Environment;
use belay_program::exit::Failure;
use belay_program::paths::Paths;
use belay_settings::{Settings, expand, store_place};
use belay_store::StoreUrl;
use belay_store::backup::{Created, Sources};
use serde_json::{Value as Json, json};

pub use keeper::BackupKeeper;
pub(crate) use keeper::{listed, target, with_or_without_key};

/// The files that a backup of these settings contains, with the key of the vault. The inner error says why there is no
/// backup of this store.
pub(crate) fn sources(
    settings: &Settings,
    env: &Environment,
    paths: &Paths,
) -> Result<Result<Sources, &'static str>, Failure> {
    let database = match store_place(settings, paths, env)? {
        StoreUrl::Sqlite(database) => database,
        StoreUrl::Memory => return Ok(Err("the store is in memory (store.url): there is nothing to back up")),
        StoreUrl::Postgres(_) => return Ok(Err(OF_THE_SERVER)),
    };
    Ok(Ok(Sources {
        files: message_files(&database),
        key: Some(paths.data.join("secret.key")),
        settings: paths.settings.iter().chain(&paths.named).cloned().collect(),
        database,
    }))
}

/// Why Belay does not back up or restore PostgreSQL.
pub(crate) const OF_THE_SERVER: &str = "the store is in PostgreSQL (store.url): back it up and restore it with the tools of the \
     server, such as pg_dump and pg_restore, and copy the directory attachments and the key of the vault of the data directory";

/// The directory of backups.
pub(crate) fn directory(settings: &Settings, env: &Environment, paths: &Paths) -> PathBuf {
    settings.backup.dir.as_deref().map_or_else(|| paths.data.join("backups"), |dir| expand(dir, env))
}

/// The description of a backup, for programs.
pub(crate) fn described(created: &Created) -> Json {
    json!({
        "file": created.path,
        "bytes": created.bytes,
        "created": created.manifest.created,
        "reason": created.manifest.reason,
        "program": created.manifest.program,
        "schema": created.manifest.schema,
        "entries": created.manifest.entries.len(),
        "with_key": created.manifest.has_key(),
        "damaged": created.manifest.damaged,
        "verified": true,
    })
}
