//! Restoring a backup.
//!
//! Everything is extracted and checked in a directory beside the data. Then the restored files replace the former ones,
//! all or none (`swap`). Files of messages that only the former store has stay.
//!
//! A restored database is a copy of a daemon that may still run. So it starts frozen, and the replies that were waiting
//! in its outbox are marked `ambiguous`: the original has sent them, or will.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use belay_protocol::{ChannelId, Freeze, FreezeId, FreezeScope, UnixMillis};
use rusqlite::{Connection, OpenFlags, params};

use super::create::digests;
use super::links::{hard_link, link_files};
use super::manifest::Manifest;
use super::swap::{self, Journal, Move, Rename, journal_path};
use super::{
    BackupError, Stop, StoreLock, check_space, directory_of, is_temporary, is_there, make_directory, read,
    sync_directory, temporary,
};
use crate::sqlite::{MARK, lock_path, with_suffix};

/// The name of the database in a data directory and in a directory of restored files.
const DATABASE: &str = "belay.db";

/// The name of the key of the vault in a data directory and in a directory of restored files.
const KEY: &str = "secret.key";

/// The name of the directory of the files of messages.
const FILES: &str = "attachments";

/// The beginning of the name of a directory of restored files.
pub(super) const STAGING: &str = ".belay-restore-";

/// The store that a backup is restored to. The files of messages are in `attachments` beside the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The database.
    pub database: PathBuf,
    /// The key of the vault.
    pub key: PathBuf,
}

impl Place {
    /// The store of a data directory: `belay.db` and `secret.key` in it.
    pub fn in_directory(data: &Path) -> Self {
        Self { database: data.join(DATABASE), key: data.join(KEY) }
    }

    /// The same place with the file of the key instead of a link to it. A moved link would lead elsewhere.
    ///
    /// # Errors
    /// [`BackupError::Link`] if the database is a link; [`BackupError::Io`].
    pub(super) fn without_links(&self) -> Result<Self, BackupError> {
        if self.database.is_symlink() {
            return Err(BackupError::Link(self.database.clone()));
        }
        let key = match std::fs::canonicalize(&self.key) {
            Ok(file) if self.key.is_symlink() => file,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(BackupError::io(&self.key)(error)),
            _ => self.key.clone(),
        };
        Ok(Self { database: self.database.clone(), key })
    }
}

/// The result of a restore.
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

/// Restores a backup. With `replace`, a directory with data is accepted, and its former database, key and files of
/// messages are kept in a new directory in it. A restore that a crash has interrupted is rolled back before.
///
/// # Errors
/// See [`BackupError`]. The former data is as it was, except after [`BackupError::Interrupted`].
pub fn restore(path: &Path, place: &Place, replace: bool, now: UnixMillis) -> Result<Restored, BackupError> {
    restore_by(path, place, replace, now, &mut |from, to| std::fs::rename(from, to))
}

/// As [`restore()`], with this rename.
pub(super) fn restore_by(
    path: &Path,
    place: &Place,
    replace: bool,
    now: UnixMillis,
    rename: Rename<'_>,
) -> Result<Restored, BackupError> {
    let place = &place.without_links()?;
    let (home, interrupted) = (directory_of(&place.database), journal_path(&place.database));
    let is_interrupted = interrupted.try_exists().map_err(BackupError::io(&interrupted))?;
    if !replace && !is_interrupted && is_occupied(place)? {
        return Err(BackupError::NotEmpty(home.to_owned()));
    }
    let manifest = read::manifest_of(path)?;
    make_directory(home)?;
    make_directory(directory_of(&place.key))?;
    let _lock = StoreLock::take(&place.database)?;
    swap::roll_back(&place.database)?;
    if !replace && is_interrupted && is_occupied(place)? {
        return Err(BackupError::NotEmpty(home.to_owned()));
    }
    sweep(home, &place.database)?;
    sweep(directory_of(&place.key), &place.database)?;
    check_space(home, manifest.bytes())?;
    let mut journal = Journal::default();
    match prepare(path, place, now, &mut journal) {
        Ok(restored) => {
            journal.make_relative(home);
            swap::swap(&place.database, &journal, rename)?;
            for directory in BTreeSet::from([home, directory_of(&place.key)]) {
                let _ = std::fs::remove_dir_all(staging_in(directory, &place.database, now)); // the next restore removes what is left
            }
            Ok(restored)
        }
        Err(error) => {
            journal.remove_directories();
            Err(error)
        }
    }
}

/// Puts the former files back after a restore that was interrupted. Returns whether there was one.
///
/// # Errors
/// [`OpenError::Locked`](crate::OpenError::Locked) if a process uses the store; [`BackupError::Io`].
pub fn roll_back(database: &Path) -> Result<bool, BackupError> {
    let path = journal_path(database);
    if !path.try_exists().map_err(BackupError::io(&path))? {
        return Ok(false);
    }
    let _lock = StoreLock::take(database)?;
    swap::roll_back(database)
}

/// The directory of the restored files of this database until they are in place.
pub(super) fn staging_in(home: &Path, database: &Path, now: UnixMillis) -> PathBuf {
    home.join(format!("{}{}", temporary(STAGING, database), now.0))
}

/// Extracts the backup, links the former files, and lists the renames that put the restored files in place.
fn prepare(path: &Path, place: &Place, now: UnixMillis, journal: &mut Journal) -> Result<Restored, BackupError> {
    let home = directory_of(&place.database);
    let staging = journal.new_directory(staging_in(home, &place.database, now))?;
    let manifest = read::extract(path, &staging)?;
    let detail = format!("restored from the backup of {}", manifest.created.to_rfc3339());
    let undelivered = quiet(&staging.join(DATABASE), detail, now)?;
    let former = keep_former(place, manifest.has_key(), now, journal)?;
    if manifest.has_key() {
        let staged = staged_key(place, &staging, now, journal)?;
        let former = former_key(place, former.as_deref(), now, journal)?;
        journal.moves.push(Move { place: place.key.clone(), former, staged: Some(staged) });
    }
    let settings = home.join(format!("restored-settings-{}", now.0));
    let has_settings = manifest.entries.iter().any(|entry| entry.origin.is_some());
    if has_settings {
        journal.moves.push(Move { place: settings.clone(), former: None, staged: Some(staging.join("settings")) });
    }
    replace_database(&place.database, former.as_deref(), staging.join(DATABASE), journal)?;

    replace_files(home, &staging, former.as_deref(), journal)?;
    Ok(Restored { manifest, former, settings: has_settings.then_some(settings), undelivered })
}

/// Lists the renames of the files of messages. A present file of the same name may be damaged, so it is replaced too.
fn replace_files(home: &Path, staging: &Path, former: Option<&Path>, journal: &mut Journal) -> Result<(), BackupError> {
    let (files, staged) = (home.join(FILES), staging.join(FILES));
    make_directory(&files)?;
    for digest in digests(&staged)? {
        let place = files.join(digest.as_str());
        let there = is_there(&place)?;
        let former = former.filter(|_| there).map(|former| former.join(FILES).join(digest.as_str()));
        journal.moves.push(Move { place, former, staged: Some(staged.join(digest.as_str())) });
    }
    Ok(())
}

/// Lists the renames of a database, its log and its mark. The former log must not be applied to the new database.
pub(super) fn replace_database(
    database: &Path,
    former: Option<&Path>,
    staged: PathBuf,
    journal: &mut Journal,
) -> Result<(), BackupError> {
    for suffix in ["-wal", "-shm", MARK, ""] {
        let file = with_suffix(database, suffix);
        let there = is_there(&file)?;
        let former = former.filter(|_| there).map(|former| former.join(file.file_name().unwrap_or_default()));
        let staged = suffix.is_empty().then(|| staged.clone());
        if former.is_some() || staged.is_some() {
            journal.moves.push(Move { place: file, former, staged });
        }
    }
    Ok(())
}

/// The path of the restored key. It is in the directory of the key: a rename cannot leave a file system.
fn staged_key(place: &Place, staging: &Path, now: UnixMillis, journal: &mut Journal) -> Result<PathBuf, BackupError> {
    let extracted = staging.join(KEY);
    let directory = directory_of(&place.key);
    if directory == directory_of(&place.database) {
        return Ok(extracted);
    }
    let staged = journal.new_directory(staging_in(directory, &place.database, now))?.join(KEY);
    copy(&extracted, &staged)?;
    Ok(staged)
}

/// The path that the former key is moved to; `None`: there is no former key.
fn former_key(
    place: &Place,
    former: Option<&Path>,
    now: UnixMillis,
    journal: &mut Journal,
) -> Result<Option<PathBuf>, BackupError> {
    if !is_there(&place.key)? {
        return Ok(None);
    }
    let directory = directory_of(&place.key);
    let directory = match former {
        Some(former) if directory == directory_of(&place.database) => former.to_owned(),
        _ => journal.new_directory(former_in(directory, now))?,
    };
    Ok(Some(directory.join(place.key.file_name().unwrap_or_default())))
}

fn former_in(directory: &Path, now: UnixMillis) -> PathBuf {
    directory.join(format!("before-restore-{}", now.0))
}

/// Whether the store has any data.
fn is_occupied(place: &Place) -> Result<bool, BackupError> {
    let home = directory_of(&place.database);
    let entries = match std::fs::read_dir(home) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return is_there(&place.key);
        }
        Err(error) => return Err(BackupError::io(home)(error)),
    };
    let lock = lock_path(&place.database);
    for entry in entries {
        if entry.map_err(BackupError::io(home))?.path() != lock {
            return Ok(true);
        }
    }
    is_there(&place.key)
}

/// Removes the staged files of a restore that was killed before its first rename. The caller has the lock of the store.
fn sweep(home: &Path, database: &Path) -> Result<(), BackupError> {
    for entry in std::fs::read_dir(home).map_err(BackupError::io(home))? {
        let entry = entry.map_err(BackupError::io(home))?;
        let path = entry.path();
        if is_temporary(&entry.file_name(), STAGING, database) {
            let is_directory = entry.file_type().map_err(BackupError::io(&path))?.is_dir();
            let removed = if is_directory { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.map_err(BackupError::io(&path))?;
        }
    }
    Ok(())
}

/// Makes the directory of the former data, with links to the files of messages. `None`: there is no former data.
pub(super) fn keep_former(
    place: &Place,
    replaces_key: bool,
    now: UnixMillis,
    journal: &mut Journal,
) -> Result<Option<PathBuf>, BackupError> {
    let (home, database) = (directory_of(&place.database), &place.database);
    // A log without its database would be applied to the restored one, and the key of another backup replaces this one.
    let mut has_data = false;
    for file in [database, &place.key, &with_suffix(database, "-wal"), &with_suffix(database, "-shm")] {
        has_data |= is_there(file)?;
    }
    has_data |= !digests(&home.join(FILES))?.is_empty();
    if !has_data {
        return Ok(None);
    }
    // SQLite does not open the former database: it would delete a log that it cannot read.
    let former = journal.new_directory(former_in(home, now))?;
    let files = former.join(FILES);
    make_directory(&files)?;
    // An unreadable file stays in its place, or is moved here when it is replaced.
    let _unreadable = link_files(&home.join(FILES), &files, &Stop::default(), &hard_link)?;
    sync_directory(&files)?;
    // A key that stays is copied: the former data is of no use without it.
    if !replaces_key && place.key.try_exists().map_err(BackupError::io(&place.key))? {
        copy(&place.key, &former.join(place.key.file_name().unwrap_or_default()))?;
    }
    sync_directory(&former)?;
    Ok(Some(former))
}

/// Copies a file durably, for this user alone.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), BackupError> {
    std::fs::copy(from, to).map_err(BackupError::io(to))?;
    super::private(to)?;
    std::fs::File::open(to).and_then(|file| file.sync_all()).map_err(BackupError::io(to))
}

/// Freezes the copy and settles its outbox. Returns the number of settled replies.
pub(super) fn quiet(database: &Path, detail: String, now: UnixMillis) -> Result<u64, BackupError> {
    let mut conn = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let tx = conn.transaction()?;
    let undelivered = tx.execute("UPDATE outbox SET state = 'ambiguous' WHERE state IN ('waiting', 'sending')", [])?;
    let freeze = Freeze {
        id: FreezeId::new(),
        scope: FreezeScope::All,
        detail: Some(detail),
        actor: "restore".to_owned(),
        source: ChannelId::new("restore"),
        at: now,
        receipt: None,
        thawed_at: None,
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
