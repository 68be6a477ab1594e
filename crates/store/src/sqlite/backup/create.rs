//! Writing a backup.
//!
//! The database is copied and the files of messages are linked into a staging directory beside the database. So the
//! janitor may delete files while the backup is written. The backup gets a temporary name, is synchronised and verified,
//! and then gets its final name: a file with the final name is whole.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};
use belay_protocol::BlobDigest;
use flate2::{Compression, GzBuilder};
use rustix::io::Errno;
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;
use tracing::warn;

use super::links::{hard_link, link_files, publish};
use super::manifest::{Entry, EntryName, FORMAT, Label, MANIFEST, Manifest};
use super::{
    BackupError, Progress, Stop, check_space, directory_of, is_temporary, make_directory, read, snapshot,
    sync_directory, temporary,
};

/// The beginning of the name of a staging directory.
const STAGING: &str = ".backup-staging-";

/// The beginning of the name of a backup that is being written.
const PREFIX: &str = ".belay-backup-";

/// The ending of the name of a backup that is being written.
const UNFINISHED: &str = ".part";

/// Bytes that are read at once.
const PIECE_BYTES: usize = 64 * 1024;

/// The files that a backup contains.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The database.
    pub database: PathBuf,
    /// The directory of the files of messages.
    pub files: PathBuf,
    /// The key of the vault; `None`: the backup does not contain it.
    pub key: Option<PathBuf>,
    /// Settings files. Missing ones are left out.
    pub settings: Vec<PathBuf>,
}

/// A written and verified backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// The file.
    pub path: PathBuf,
    /// Its size, in bytes.
    pub bytes: u64,
    /// Its contents.
    pub manifest: Manifest,
}

/// Writes a backup to `target`, which must not exist, and verifies it. The store may be in use by this process, or must
/// be locked by it ([`StoreLock`](super::StoreLock)): at most one backup of a store is made at a time.
///
/// # Errors
/// See [`BackupError`]. Nothing has the name `target` then.
pub fn create(
    sources: &Sources,
    target: &Path,
    label: Label<'_>,
    stop: &Stop,
    progress: Progress<'_>,
) -> Result<Created, BackupError> {
    if target.try_exists().map_err(BackupError::io(target))? {
        return Err(BackupError::Exists(target.to_owned()));
    }
    crate::sqlite::refuse_interrupted_restore(&sources.database)?;
    let (home, directory) = (directory_of(&sources.database), directory_of(target));
    make_directory(directory)?;
    sweep(&sources.database, directory)?;
    let database_bytes = match std::fs::metadata(&sources.database) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(BackupError::NoDatabase(sources.database.clone()));
        }
        Err(error) => return Err(BackupError::io(&sources.database)(error)),
    };
    // The snapshot, and the database that the verification extracts.
    check_space(home, database_bytes.saturating_mul(2))?;
    let prefix = temporary(STAGING, &sources.database);
    let staging = tempfile::Builder::new().prefix(&prefix).tempdir_in(home).map_err(BackupError::io(home))?;
    let (staged, damaged) = stage(sources, &staging, stop)?;
    let schema = read::check_database(&staging.path().join("belay.db"), &sources.database, stop)?;
    let needed = staged.iter().map(|file| file.entry.bytes).sum::<u64>();
    check_space(directory, needed)?;

    let manifest = Manifest {
        format: FORMAT,
        program: label.program.to_owned(),
        schema,
        created: label.now,
        reason: label.reason,
        entries: staged.iter().map(|file| file.entry.clone()).collect(),
        damaged,
    };
    let unfinished = Unfinished::create(target)?;
    write(&unfinished, &manifest, &staged, stop, progress)?;
    let verified = read::verify_at(&unfinished.path, staging.path(), stop)?;
    if verified != manifest {
        return Err(BackupError::damaged(&unfinished.path, "its manifest is not the one that was written"));
    }
    let bytes = std::fs::metadata(&unfinished.path).map_err(BackupError::io(&unfinished.path))?.len();
    stop.check()?;
    publish(&unfinished.path, target, &hard_link).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => BackupError::Exists(target.to_owned()),
        _ => BackupError::io(target)(error),
    })?;
    drop(unfinished);
    sync_directory(directory)?;
    Ok(Created { path: target.to_owned(), bytes, manifest })
}

/// A file of the staging directory.
struct Staged {
    entry: Entry,
    path: PathBuf,
}

/// Copies and links everything that goes into the backup. Returns also the damaged files of messages, which are left out.
fn stage(sources: &Sources, staging: &TempDir, stop: &Stop) -> Result<(Vec<Staged>, Vec<BlobDigest>), BackupError> {
    let (database, files) = (staging.path().join("belay.db"), staging.path().join("attachments"));
    make_directory(&files)?;
    // Before and after: a row of the snapshot has its file, also if the janitor or an upload is at work meanwhile.
    link_files(&sources.files, &files, stop, &hard_link)?;
    snapshot(&sources.database, &database, stop)?;
    let mut damaged = link_files(&sources.files, &files, stop, &hard_link)?;

    let mut staged = vec![Staged { entry: described(EntryName::Database, &database, None, stop)?, path: database }];
    if let Some(key) = &sources.key {
        staged.push(Staged { entry: described(EntryName::Key, key, None, stop)?, path: key.clone() });
    }
    for (number, origin) in (0..).zip(&sources.settings) {
        let copy = staging.path().join(format!("{number}.toml"));
        // A pipe, as in --config <(…), would block.
        let is_file = std::fs::metadata(origin).map(|found| found.is_file());
        match is_file.and_then(|is_file| if is_file { std::fs::copy(origin, &copy).map(|_| true) } else { Ok(false) }) {
            Ok(false) => {}
            Ok(true) => {
                let entry = described(EntryName::Settings(number), &copy, Some(origin), stop)?;
                staged.push(Staged { entry, path: copy });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(BackupError::io(origin)(error)),
        }
    }
    for digest in digests(&files)? {
        let path = files.join(digest.as_str());
        match described(EntryName::File(digest.clone()), &path, None, stop) {
            Ok(entry) if entry.sha256 == digest.as_str() => staged.push(Staged { entry, path }),
            Ok(_) => damaged.push(digest),
            Err(BackupError::Io { source, path }) if is_unreadable(&source) => {
                warn!(file = %path.display(), error = %source, "a file of a message cannot be read");
                damaged.push(digest);
            }
            Err(error) => return Err(error),
        }
    }
    damaged.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    damaged.dedup(); // the copy of a file may have failed in the middle
    for digest in &damaged {
        warn!(file = digest.as_str(), "a file of a message is damaged; the backup does not contain it");
    }
    Ok((staged, damaged))
}

/// Whether this one file cannot be read: by the disk, by the checksums of the file system, or by this user. Other errors
/// are not of the file.
pub(super) fn is_unreadable(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    #[cfg(target_os = "linux")]
    if errno == Some(Errno::UCLEAN) {
        return true;
    }
    errno.is_some_and(|errno| [Errno::IO, Errno::BADMSG, Errno::ACCESS].contains(&errno))
}

/// The digests of the files in a directory, sorted. Other files are left out.
pub(super) fn digests(directory: &Path) -> Result<Vec<BlobDigest>, BackupError> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(BackupError::io(directory)(error)),
    };
    let mut digests = Vec::new();
    for entry in entries {
        let entry = entry.map_err(BackupError::io(directory))?;
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let name = entry.file_name();
        digests.extend(name.to_str().and_then(|name| name.parse::<BlobDigest>().ok()));
    }
    digests.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    Ok(digests)
}

fn described(name: EntryName, path: &Path, origin: Option<&PathBuf>, stop: &Stop) -> Result<Entry, BackupError> {
    let mut file = File::open(path).map_err(BackupError::io(path))?;
    let (mut digest, mut piece, mut bytes) = (Context::new(&SHA256), vec![0; PIECE_BYTES], 0);
    loop {
        stop.check()?;
        match file.read(&mut piece).map_err(BackupError::io(path))? {
            0 => break,
            n => {
                digest.update(&piece[..n]);
                bytes += n as u64;
            }
        }
    }
    let sha256 = read::hex(digest.finish().as_ref());
    let origin = origin.map(|path| path.display().to_string());
    Ok(Entry { name, bytes, sha256, origin })
}

fn write(
    to: &Unfinished,
    manifest: &Manifest,
    files: &[Staged],
    stop: &Stop,
    progress: Progress<'_>,
) -> Result<(), BackupError> {
    let io = |error| BackupError::io(&to.path)(error);
    // The header of the compressed file is constant, so that verification can compare it.
    let gzip = GzBuilder::new().mtime(0).write(BufWriter::new(&to.file), Compression::fast());
    let mut tar = Builder::new(gzip);
    let json = serde_json::to_vec(manifest).map_err(|error| io(error.into()))?;
    append(&mut tar, MANIFEST, json.len() as u64, json.as_slice(), manifest).map_err(io)?;
    let (mut done, all) = (0, manifest.bytes());
    for file in files {
        progress(done, all);
        stop.check()?;
        let source = BufReader::new(File::open(&file.path).map_err(BackupError::io(&file.path))?);
        let mut watched =
            Watched { inner: source.take(file.entry.bytes), done: &mut done, all, stop, progress: &mut *progress };
        let appended = append(&mut tar, &file.entry.name.to_string(), file.entry.bytes, &mut watched, manifest);
        stop.check()?;
        appended.map_err(io)?;
    }
    let gzip = tar.into_inner().map_err(io)?;
    let mut file = gzip.finish().map_err(io)?;
    file.flush().map_err(io)?;
    drop(file);
    to.file.sync_all().map_err(io)
}

fn append(
    tar: &mut Builder<impl Write>,
    name: &str,
    bytes: u64,
    data: impl Read,
    manifest: &Manifest,
) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o600);
    header.set_size(bytes);
    header.set_mtime(u64::try_from(manifest.created.0 / 1000).unwrap_or(0));
    tar.append_data(&mut header, name, data)
}

/// Counts the bytes that pass, and stops when the caller says so.
struct Watched<'a, 'b, R> {
    inner: R,
    done: &'a mut u64,
    all: u64,
    stop: &'a Stop,
    progress: &'a mut (dyn FnMut(u64, u64) + 'b),
}

impl<R: Read> Read for Watched<'_, '_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (self.progress)(*self.done, self.all);
        if self.stop.is_stopped() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let n = self.inner.read(buffer)?;
        *self.done += n as u64;
        Ok(n)
    }
}

/// A backup under its temporary name, locked while it is being written. Dropping it removes that name.
struct Unfinished {
    path: PathBuf,
    file: File,
}

impl Unfinished {
    fn create(target: &Path) -> Result<Self, BackupError> {
        let mut name = std::ffi::OsString::from(PREFIX);
        name.push(target.file_name().unwrap_or_default());
        name.push(UNFINISHED);
        let path = target.with_file_name(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(BackupError::io(&path))?;
        file.lock().map_err(BackupError::io(&path))?;
        Ok(Self { path, file })
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path); // the next backup removes what is left
    }
}

/// Removes the leftovers of killed backups of this database, also in this directory of backups. The caller has the store
/// and makes no backup meanwhile; a file of another process is locked.
///
/// # Errors
/// [`BackupError::Io`]
pub fn sweep(database: &Path, directory: &Path) -> Result<(), BackupError> {
    let home = directory_of(database);
    for entry in std::fs::read_dir(home).map_err(BackupError::io(home))? {
        let entry = entry.map_err(BackupError::io(home))?;
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_directory && is_temporary(&entry.file_name(), STAGING, database) {
            std::fs::remove_dir_all(entry.path()).map_err(BackupError::io(&entry.path()))?;
        }
    }
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(BackupError::io(directory))?,
    };
    for entry in entries {
        let entry = entry.map_err(BackupError::io(directory))?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        // A pipe of that name would block.
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        let ours = is_file && name.starts_with(PREFIX) && name.ends_with(UNFINISHED);
        if ours && File::open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
            std::fs::remove_file(&path).map_err(BackupError::io(&path))?;
        }
    }
    Ok(())
}
