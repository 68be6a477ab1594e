//! Reading a backup: verification and extraction. Nothing in the file is believed: names are of a closed list, and sizes
//! are bounded by the manifest, which is bounded itself.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use aws_lc_rs::digest::{Context, SHA256};
use flate2::bufread::GzDecoder;
use rusqlite::{Connection, OpenFlags};
use tar::{Archive, EntryType};

use super::manifest::{Entry, EntryName, FORMAT, MANIFEST, MANIFEST_MAX_BYTES, Manifest};
use super::{BackupError, Stop, directory_of};
use crate::error::OpenError;
use crate::sqlite::Version;

/// The header of the compressed file, as [`create`](super::create()) writes it. Source: RFC 1952, 2.3.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];

/// Most bytes after the last entry: the end of a tar, padded to a record.
const END_MAX_BYTES: u64 = 64 * 1024;

/// Checks a whole backup: every digest, the end of the file, and the database in it (`PRAGMA integrity_check`, schema).
///
/// The database is extracted for that, beside the backup, or else to the directory of temporary files.
///
/// # Errors
/// [`BackupError::Damaged`], [`BackupError::Newer`], [`BackupError::Io`].
pub fn verify(path: &Path) -> Result<Manifest, BackupError> {
    let scratch = tempfile::Builder::new().prefix(".belay-verify-").tempdir_in(directory_of(path));
    let scratch = scratch.or_else(|_| tempfile::tempdir()).map_err(BackupError::io(path))?;
    verify_at(path, scratch.path(), &Stop::default())
}

/// As [`verify`]. The database is extracted to this directory, as `verified.db`.
pub(super) fn verify_at(path: &Path, scratch: &Path, stop: &Stop) -> Result<Manifest, BackupError> {
    let database = scratch.join("verified.db");
    let manifest = read(path, stop, &mut |entry, data| match entry.name {
        EntryName::Database => copy(data, &database),
        _ => io::copy(data, &mut io::sink()).map(|_| ()),
    })?;
    check_extracted(path, &manifest, &database, stop)?;
    std::fs::remove_file(&database).map_err(BackupError::io(&database))?;
    Ok(manifest)
}

/// Extracts a backup to an empty directory and checks everything that [`verify`] checks. Settings files go to
/// `settings`, the files of messages to `attachments`.
pub(super) fn extract(path: &Path, to: &Path) -> Result<Manifest, BackupError> {
    for directory in ["settings", "attachments"] {
        super::make_directory(&to.join(directory))?;
    }
    let stop = Stop::default();
    let manifest = read(path, &stop, &mut |entry, data| copy(data, &to.join(entry.name.to_string())))?;
    check_extracted(path, &manifest, &to.join("belay.db"), &stop)?;
    Ok(manifest)
}

/// The manifest of a backup. The rest of the file is not checked.
///
/// # Errors
/// [`BackupError::Damaged`], [`BackupError::Newer`], [`BackupError::Io`].
pub fn manifest_of(path: &Path) -> Result<Manifest, BackupError> {
    let mut archive = Archive::new(open(path)?);
    // Raw: headers that continue in a body of any length are entries of a type that is refused.
    let mut entries = archive.entries().map_err(|error| unreadable(path, &error))?.raw(true);
    read_manifest(path, &mut entries)
}

type Decoder = GzDecoder<BufReader<File>>;

fn open(path: &Path) -> Result<Decoder, BackupError> {
    // A pipe would block.
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let mut file = file.map_err(BackupError::io(path))?;
    if !file.metadata().map_err(BackupError::io(path))?.is_file() {
        return Err(BackupError::damaged(path, "it is not a file"));
    }
    let mut header = [0; HEADER.len()];
    file.read_exact(&mut header).map_err(|error| unreadable(path, &error))?;
    if header != HEADER {
        return Err(BackupError::damaged(path, "it does not begin as a backup does"));
    }
    io::Seek::rewind(&mut file).map_err(BackupError::io(path))?;
    Ok(GzDecoder::new(BufReader::new(file)))
}

fn read_manifest(path: &Path, entries: &mut tar::Entries<'_, Decoder>) -> Result<Manifest, BackupError> {
    let first = entries.next().ok_or_else(|| BackupError::damaged(path, "it is empty"))?;
    let first = first.map_err(|error| unreadable(path, &error))?;
    if first.path_bytes().as_ref() != MANIFEST.as_bytes() || first.header().entry_type() != EntryType::Regular {
        return Err(BackupError::damaged(path, "it has no manifest"));
    }
    if first.size() > MANIFEST_MAX_BYTES {
        return Err(BackupError::damaged(path, "its manifest is too large"));
    }
    let mut json = Vec::new();
    first.take(MANIFEST_MAX_BYTES).read_to_end(&mut json).map_err(|error| unreadable(path, &error))?;
    let value: serde_json::Value =
        serde_json::from_slice(&json).map_err(|error| BackupError::damaged(path, format!("its manifest: {error}")))?;
    // Before the other fields, which a newer format may have changed.
    match value.get("format").and_then(serde_json::Value::as_u64) {
        Some(format) if format > u64::from(FORMAT) => {
            return Err(BackupError::Newer { path: path.to_owned(), detail: format!("format {format}") });
        }
        _ => {}
    }
    let manifest: Manifest =
        serde_json::from_value(value).map_err(|error| BackupError::damaged(path, format!("its manifest: {error}")))?;
    let mut names: Vec<_> = manifest.entries.iter().map(|entry| &entry.name).collect();
    names.sort();
    if names.windows(2).any(|pair| pair[0] == pair[1]) || names.first() != Some(&&EntryName::Database) {
        return Err(BackupError::damaged(path, "its manifest names an entry twice, or no database"));
    }
    Ok(manifest)
}

/// Reads all entries in the order of the manifest, and checks name, type, size and digest of each, and the end.
fn read(
    path: &Path,
    stop: &Stop,
    take: &mut dyn FnMut(&Entry, &mut dyn Read) -> io::Result<()>,
) -> Result<Manifest, BackupError> {
    let mut archive = Archive::new(open(path)?);
    // Raw: headers that continue in a body of any length are entries of a type that is refused.
    let mut entries = archive.entries().map_err(|error| unreadable(path, &error))?.raw(true);
    let manifest = read_manifest(path, &mut entries)?;
    for expected in &manifest.entries {
        let name = expected.name.to_string();
        let found = entries.next().ok_or_else(|| BackupError::damaged(path, format!("{name} is missing")))?;
        let mut found = found.map_err(|error| unreadable(path, &error))?;
        let is_plain = found.header().entry_type() == EntryType::Regular && found.link_name_bytes().is_none();
        if !is_plain || found.path_bytes().as_ref() != name.as_bytes() || found.size() != expected.bytes {
            return Err(BackupError::damaged(path, format!("in place of {name} it has another entry")));
        }
        let mut data =
            Hashed { inner: (&mut found).take(expected.bytes), digest: Context::new(&SHA256), bytes: 0, stop };
        let taken = take(expected, &mut data);
        stop.check()?;
        taken.map_err(|error| unreadable(path, &error))?;
        if data.bytes != expected.bytes || hex(data.digest.finish().as_ref()) != expected.sha256 {
            return Err(BackupError::damaged(path, format!("{name} is not what the manifest says")));
        }
    }
    match entries.next() {
        None => {}
        Some(Ok(_)) => return Err(BackupError::damaged(path, "it has more entries than its manifest")),
        Some(Err(error)) => return Err(unreadable(path, &error)),
    }
    read_end(path, archive.into_inner())?;
    Ok(manifest)
}

/// Reads to the end, where the checksum of the compressed data is.
fn read_end(path: &Path, mut decoder: Decoder) -> Result<(), BackupError> {
    let mut rest = Vec::new();
    decoder.by_ref().take(END_MAX_BYTES).read_to_end(&mut rest).map_err(|error| unreadable(path, &error))?;
    let mut one = [0];
    let ended = rest.iter().all(|byte| *byte == 0) && decoder.read(&mut one).is_ok_and(|n| n == 0);
    let nothing_after = decoder.into_inner().read(&mut one).is_ok_and(|n| n == 0);
    if ended && nothing_after { Ok(()) } else { Err(BackupError::damaged(path, "it has bytes after its end")) }
}

fn check_extracted(path: &Path, manifest: &Manifest, database: &Path, stop: &Stop) -> Result<(), BackupError> {
    let schema = check_database(database, path, stop)?;
    if schema != manifest.schema {
        return Err(BackupError::damaged(path, "the schema of its database is not what the manifest says"));
    }
    Ok(())
}

/// Checks a database that nobody uses, and returns its schema. `named` is its name in errors.
pub(super) fn check_database(database: &Path, named: &Path, stop: &Stop) -> Result<u32, BackupError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let damaged = |error: rusqlite::Error| BackupError::damaged(named, format!("its database: {error}"));
    let conn = Connection::open_with_flags(database, flags).map_err(damaged)?;
    let version = Version::of(&conn).map_err(damaged)?;
    match version.check() {
        Ok(()) if version.schema > 0 => {}
        Ok(()) => return Err(BackupError::damaged(named, "its database has no tables")),
        Err(OpenError::Newer { found, known, .. }) => {
            let detail = format!("its schema is {found}, and this belay knows schemas up to {known}");
            return Err(BackupError::Newer { path: named.to_owned(), detail });
        }
        Err(error) => return Err(error.into()),
    }
    if let Some(name) = crate::sqlite::unknown_object(&conn, version.schema).map_err(damaged)? {
        return Err(BackupError::damaged(
            named,
            format!("its database has {name}, which belay does not make: drop it in the original"),
        ));
    }
    if let Some(name) = crate::sqlite::missing_object(&conn, version.schema).map_err(damaged)? {
        let detail = format!("its database has {name}, which schema {} has: choose another backup", version.schema);
        return Err(BackupError::damaged(named, detail));
    }
    let check = || conn.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0));
    let found = stop.interruptible(&conn, check)?.map_err(damaged)?;
    if found != "ok" {
        return Err(BackupError::damaged(named, format!("its database: {found}")));
    }
    Ok(version.schema)
}

fn copy(data: &mut dyn Read, to: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    io::copy(data, &mut file)?;
    file.flush()?;
    file.sync_all()
}

fn unreadable(path: &Path, error: &io::Error) -> BackupError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            BackupError::io(path)(io::Error::new(error.kind(), error.to_string()))
        }
        _ => BackupError::damaged(path, error.to_string()),
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Computes the digest of the bytes that pass.
struct Hashed<'a, R> {
    inner: R,
    digest: Context,
    bytes: u64,
    stop: &'a Stop,
}

impl<R: Read> Read for Hashed<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_stopped() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let n = self.inner.read(buffer)?;
        self.digest.update(&buffer[..n]);
        self.bytes += n as u64;
        Ok(n)
    }
}
