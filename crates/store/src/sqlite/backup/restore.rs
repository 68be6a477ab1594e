//! Restoring a backup.
//!
//! Everything is extracted and checked in a directory beside the data. Then the database takes its place by one rename:
//! at every moment, the data directory has either the old database or the new one. The files of messages are named by
//! their digests, so the new ones are added to the old ones.
//!
//! A restored database is a copy of a daemon that may still run. So it starts frozen, and the replies that were waiting
//! in its outbox are marked `ambiguous`: the original has sent them, or will.

use std::io;
use std::path::{Path, PathBuf};

use belay_protocol::{ChannelId, Freeze, FreezeId, FreezeScope, UnixMillis};
use rusqlite::{Connection, OpenFlags, params};

use super::create::link_files;
use super::manifest::Manifest;
use super::{BackupError, StoreLock, check_space, directory_of, make_directory, read, sync_directory};

/// The name of the database in a data directory.
const DATABASE: &str = "belay.db";

/// What a restore has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The contents of the backup.
    pub manifest: Manifest,
    /// The directory of the former data, if there was any.
    pub former: Option<PathBuf>,
    /// The directory of the restored settings files, which are not in force there.
    pub settings: Option<PathBuf>,
    /// Replies that were waiting for delivery, and are not sent by the copy.
    pub undelivered: u64,
}

/// Restores a backup to a data directory, as `belay.db`. With `replace`, a directory with data is accepted, and its former
/// database, key and files of messages are kept in a new directory in it.
///
/// # Errors
/// See [`BackupError`]; the former data is as it was.
pub fn restore(path: &Path, data: &Path, replace: bool, now: UnixMillis) -> Result<Restored, BackupError> {
    if !replace && is_occupied(data)? {
        return Err(BackupError::NotEmpty(data.to_owned()));
    }
    let manifest = read::manifest_of(path)?;
    make_directory(data)?;
    check_space(data, manifest.bytes())?;
    let database = data.join(DATABASE);
    let _lock = StoreLock::take(&database)?;
    let staging = tempfile::Builder::new().prefix(".belay-restore-").tempdir_in(data).map_err(BackupError::io(data))?;
    let manifest = read::extract(path, staging.path())?;
    let undelivered = quiet(&staging.path().join(DATABASE), &manifest, now)?;
    let stamp = now.0;

    let settings = data.join(format!("restored-settings-{stamp}"));
    let has_settings = manifest.entries.iter().any(|entry| entry.origin.is_some());
    let former = keep_former(&database, stamp)?;
    if has_settings {
        rename(&staging.path().join("settings"), &settings)?;
    }
    let files = data.join("attachments");
    make_directory(&files)?;
    link_files(&staging.path().join("attachments"), &files)?;
    sync_directory(&files)?;
    // The former log must not be applied to the new database; the former database is kept with it.
    if let Some(former) = &former {
        for log in ["belay.db-wal", "belay.db-shm"] {
            rename_if_there(&data.join(log), &former.join(log))?;
        }
    }
    if manifest.has_key() {
        rename(&staging.path().join("secret.key"), &data.join("secret.key"))?;
    }
    rename(&staging.path().join(DATABASE), &database)?;
    sync_directory(data)?;
    Ok(Restored { manifest, former, settings: has_settings.then_some(settings), undelivered })
}

/// Whether a directory has anything in it.
fn is_occupied(data: &Path) -> Result<bool, BackupError> {
    match std::fs::read_dir(data) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(BackupError::io(data)(error)),
    }
}

/// Links the former data into a new directory. `None`: there is none.
pub(super) fn keep_former(database: &Path, stamp: i64) -> Result<Option<PathBuf>, BackupError> {
    let data = directory_of(database);
    let key = data.join("secret.key");
    // A log without its database would be applied to the restored one, and the key of another backup replaces this one.
    let mut is_there = false;
    for file in [database, &key, &data.join("belay.db-wal"), &data.join("belay.db-shm")] {
        is_there |= file.try_exists().map_err(BackupError::io(file))?;
    }
    if !is_there {
        return Ok(None);
    }
    // Moves the log into the database. A damaged database, which may be the reason for the restore, is kept with its log.
    if let Ok(conn) = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_WRITE) {
        let _ = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }
    let former = data.join(format!("before-restore-{stamp}"));
    let files = former.join("attachments");
    make_directory(&files)?;
    link_files(&data.join("attachments"), &files)?;
    for file in [database, &key] {
        let kept = former.join(file.file_name().unwrap_or_default());
        match std::fs::hard_link(file, &kept) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(BackupError::io(&kept)(error)),
            _ => {}
        }
    }
    sync_directory(&former)?;
    Ok(Some(former))
}

/// Freezes the copy and settles its outbox. Returns the number of settled replies.
fn quiet(database: &Path, manifest: &Manifest, now: UnixMillis) -> Result<u64, BackupError> {
    let mut conn = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let tx = conn.transaction()?;
    let undelivered = tx.execute("UPDATE outbox SET state = 'ambiguous' WHERE state IN ('waiting', 'sending')", [])?;
    let freeze = Freeze {
        id: FreezeId::new(),
        scope: FreezeScope::All,
        detail: Some(format!("restored from the backup of {}", manifest.created.to_rfc3339())),
        actor: "restore".to_owned(),
        source: ChannelId::new("restore"),
        at: now,
        receipt: None,
    };
    let scope = serde_json::to_string(&freeze.scope).map_err(|error| BackupError::io(database)(error.into()))?;
    tx.execute(
        "INSERT INTO freezes (id, at, scope, detail, actor, source) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![freeze.id.as_uuid(), freeze.at.0, scope, freeze.detail, freeze.actor, freeze.source.as_str()],
    )?;
    tx.commit()?;
    conn.close().map_err(|(_, error)| error)?;
    std::fs::File::open(database).and_then(|file| file.sync_all()).map_err(BackupError::io(database))?;
    Ok(undelivered as u64)
}

pub(super) fn rename(from: &Path, to: &Path) -> Result<(), BackupError> {
    std::fs::rename(from, to).map_err(BackupError::io(to))
}

pub(super) fn rename_if_there(from: &Path, to: &Path) -> Result<(), BackupError> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(BackupError::io(to)(error)),
        _ => Ok(()),
    }
}
