//! Replaces the files of a store: all of them, or none.
//!
//! The data directory also has the backups and the lock, so it is not renamed as a whole. A journal beside the database
//! lists every rename instead. The removal of the journal is the commit. An error rolls the renames back. After a crash,
//! the journal is still there: no start and no backup uses the store, and [`roll_back`] restores the former files.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::restore::STAGING;
use super::{BackupError, directory_of, is_there, make_directory, sync_directory, temporary};
use crate::sqlite::with_suffix;

/// Renames a file. Tests replace it by one that fails.
pub(super) type Rename<'a> = &'a mut dyn FnMut(&Path, &Path) -> io::Result<()>;

/// The renames of a replacement. Relative paths begin at the directory of the database.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Journal {
    /// In the order of execution.
    pub(super) moves: Vec<Move>,
    /// The directories that are removed after a rollback: staged files, and links to former files.
    pub(super) directories: Vec<PathBuf>,
}

impl Journal {
    /// Makes a new directory, which is removed after a rollback.
    pub(super) fn new_directory(&mut self, path: PathBuf) -> Result<PathBuf, BackupError> {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(BackupError::io(&path))?;
        self.directories.push(path.clone());
        Ok(path)
    }

    /// Removes the directories after an error before the first rename.
    pub(super) fn remove_directories(&self) {
        for directory in &self.directories {
            let _ = std::fs::remove_dir_all(directory); // the caller reports its own error
        }
    }

    /// Makes the paths in this directory relative, so that the data may be mounted at another path for the rollback.
    pub(super) fn make_relative(&mut self, home: &Path) {
        let relative = |path: &mut PathBuf| {
            if let Ok(rest) = path.strip_prefix(home) {
                *path = rest.to_owned();
            }
        };
        self.directories.iter_mut().for_each(relative);
        for one in &mut self.moves {
            [Some(&mut one.place), one.former.as_mut(), one.staged.as_mut()].into_iter().flatten().for_each(relative);
        }
    }
}

/// The replacement of one file or directory.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Move {
    /// The path that is replaced.
    pub(super) place: PathBuf,
    /// The new path of the former file; `None`: there is no former file.
    pub(super) former: Option<PathBuf>,
    /// The path of the new file until the replacement; `None`: there is no new file.
    pub(super) staged: Option<PathBuf>,
}

/// The path of the journal. It exists during a replacement, and after one that a crash has interrupted.
pub(crate) fn journal_path(database: &Path) -> PathBuf {
    with_suffix(database, ".restoring")
}

/// Replaces the files. Every staged file must be synchronised already.
///
/// # Errors
/// [`BackupError::Io`]: the former files are in place again. [`BackupError::Interrupted`]: the rollback failed too.
pub(super) fn swap(database: &Path, journal: &Journal, rename: Rename<'_>) -> Result<(), BackupError> {
    let home = directory_of(database);
    // A failed journal is undone too: it may be there without being durable.
    let done = write_journal(database, journal)
        .and_then(|()| journal.moves.iter().try_for_each(|one| replace(home, one, rename)));
    let done = done.and_then(|()| sync_all(home, journal)).and_then(|()| {
        let path = journal_path(database);
        std::fs::remove_file(&path).map_err(BackupError::io(&path))
    });
    if let Err(error) = done {
        let undone = undo(database, journal);
        return Err(match undone {
            Ok(()) => error,
            // Without a journal, all former files are in place.
            Err(_) if is_interrupted(database).is_ok_and(|is_interrupted| !is_interrupted) => error,
            Err(undoing) => BackupError::Interrupted {
                journal: journal_path(database),
                detail: format!(": {error}; putting the former files back failed too: {undoing}"),
            },
        });
    }
    let _ = sync_directory(home); // without it, a crash now leads to a rollback, which is no damage
    Ok(())
}

/// Puts the former files back after an interrupted replacement. The caller holds the lock of the store. Returns whether
/// there was an interrupted replacement.
///
/// # Errors
/// [`BackupError::Io`]. The journal stays then.
pub(super) fn roll_back(database: &Path) -> Result<bool, BackupError> {
    let path = journal_path(database);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(BackupError::io(&path)(error)),
    };
    let journal = serde_json::from_slice(&text)
        .map_err(|error| BackupError::io(&path)(io::Error::new(io::ErrorKind::InvalidData, error)))?;
    undo(database, &journal)?;
    Ok(true)
}

/// Whether a crash has interrupted a replacement.
pub(crate) fn is_interrupted(database: &Path) -> io::Result<bool> {
    journal_path(database).try_exists()
}

fn write_journal(database: &Path, journal: &Journal) -> Result<(), BackupError> {
    let (home, path) = (directory_of(database), journal_path(database));
    let write = || {
        let mut file = tempfile::Builder::new().prefix(&temporary(STAGING, database)).tempfile_in(home)?;
        serde_json::to_writer(&mut file, journal)?;
        file.flush()?;
        file.as_file().sync_all()?;
        file.persist_noclobber(&path).map_err(|error| error.error)
    };
    write().map_err(BackupError::io(&path))?;
    sync_directory(home)
}

fn replace(home: &Path, one: &Move, rename: Rename<'_>) -> Result<(), BackupError> {
    let place = home.join(&one.place);
    let mut step = |from: &Path, to: &Path| rename(from, to).map_err(BackupError::io(to));
    if let Some(former) = &one.former {
        step(&place, &home.join(former))?;
    }
    if let Some(staged) = &one.staged {
        step(&home.join(staged), &place)?;
    }
    Ok(())
}

/// Undoes the moves, the last one first, and removes the journal. It may be repeated at any point.
fn undo(database: &Path, journal: &Journal) -> Result<(), BackupError> {
    let home = directory_of(database);
    for one in journal.moves.iter().rev() {
        let place = home.join(&one.place);
        match (&one.former, &one.staged) {
            (Some(former), _) => {
                let former = home.join(former);
                // Without it, the former file is still in its place.
                if is_there(&former)? {
                    super::restore::rename(&former, &place)?; // replaces the new file
                }
            }
            (None, Some(staged)) => {
                let staged = home.join(staged);
                if !is_there(&staged)? && is_there(&place)? {
                    make_directory(directory_of(&staged))?;
                    super::restore::rename(&place, &staged)?;
                }
            }
            (None, None) => {}
        }
    }
    sync_all(home, journal)?;
    for directory in &journal.directories {
        let directory = home.join(directory);
        match std::fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(BackupError::io(&directory)(error)),
            _ => {}
        }
    }
    let path = journal_path(database);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(BackupError::io(&path)(error)),
        _ => sync_directory(home),
    }
}

/// Makes all names of the journal durable.
fn sync_all(home: &Path, journal: &Journal) -> Result<(), BackupError> {
    let mut directories = std::collections::BTreeSet::from([home.to_owned()]);
    for one in &journal.moves {
        for path in [Some(&one.place), one.former.as_ref(), one.staged.as_ref()].into_iter().flatten() {
            directories.insert(directory_of(&home.join(path)).to_owned());
        }
    }
    // A directory may be missing after a rollback that was interrupted itself.
    directories.iter().filter(|directory| directory.is_dir()).try_for_each(|directory| sync_directory(directory))
}
