//! Whether a database and its write-ahead log belong together and are whole, before SQLite reads them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::log::{self, Log, digest};
use super::mark::Mark;
use super::open::real;
use super::with_suffix;
use crate::error::OpenError;

/// The outcome of the comparison.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Nothing is known to be wrong.
    Fine,
    /// The log and the database are not of each other, for this reason.
    Foreign(&'static str),
    /// The log is missing.
    Missing,
    /// The log is shorter than it was.
    Cut,
}

/// Compares the database with its log and its mark. `file`: the open database, see [`Locks`](super::Locks). Returns what
/// people must know about transactions that were lost with a part of the log.
///
/// # Errors
/// [`OpenError::ForeignLog`]: SQLite would apply a log that is not of this database. [`OpenError::Io`].
pub(crate) fn check(database: &Path, file: &File) -> Result<Option<String>, OpenError> {
    let place = real(database);
    let path = with_suffix(&place, "-wal");
    let io = |source| OpenError::Io { path: path.clone(), source };
    let mark = Mark::of(&place).filter(|mark| mark.page > 0);
    let log = log::read(&path, mark.map(|mark| mark.page)).map_err(io)?;
    let verdict = compare(file, &log, mark).map_err(|source| OpenError::Io { path: database.into(), source })?;
    let what = match verdict {
        Verdict::Fine => return Ok(None),
        Verdict::Foreign(detail) => {
            return Err(OpenError::ForeignLog { log: path, database: database.into(), detail });
        }
        Verdict::Missing => "is missing",
        Verdict::Cut => "was cut, or its end is damaged",
    };
    Ok(Some(format!(
        "the write-ahead log {} {what}: the last transactions of {} are lost. Only before a start, a log that you still have \
         can be put back. Compare with the newest backup (`belay backup list`), and restore it if it has more (`belay backup \
         restore FILE --force`)",
        path.display(),
        database.display()
    )))
}

/// Refuses to make a new database beside the log of one that is gone.
///
/// # Errors
/// [`OpenError::ForeignLog`], [`OpenError::Io`].
pub(crate) fn check_gone(database: &Path) -> Result<(), OpenError> {
    let path = with_suffix(database, "-wal");
    let log = log::read(&path, None).map_err(|source| OpenError::Io { path: path.clone(), source })?;
    if log.frames > 0 {
        return Err(OpenError::ForeignLog {
            log: path,
            database: database.into(),
            detail: "the database file is missing",
        });
    }
    Ok(())
}

fn compare(file: &File, log: &Log, mark: Option<Mark>) -> io::Result<Verdict> {
    let has_log = log.frames > 0;
    let mut header = [0; 28];
    if file.metadata()?.len() < header.len() as u64 {
        // Without a log, SQLite says that it is no database. With one, it would delete the log.
        return Ok(if has_log { Verdict::Foreign("the database file is empty or cut") } else { Verdict::Fine });
    }
    file.read_exact_at(&mut header, 0)?;
    // SQLite, "Database File Format", 1.3: the page size is at offset 16, with 1 for 65,536; the change counter at 24.
    let page_size = match u32::from(u16::from_be_bytes([header[16], header[17]])) {
        1 => 65_536,
        bytes => bytes,
    };
    if has_log && log.page_size != page_size {
        return Ok(Verdict::Foreign("its pages have another size"));
    }
    if let Some(mark) = mark {
        let found = page_digest(file, mark.page, page_size);
        let (is_base, is_same_log) = (found == Some(mark.base), log.page_size > 0 && log.salts == mark.salts);
        let in_log = found.is_some_and(|found| log.versions.contains(&found));
        // Frames that are in the database file already are no loss.
        let has_pending = mark.frames > mark.done;
        if mark.closed {
            // Another program that writes the database does not touch this page, and belay does so first.
            if !log.versions.is_empty() && is_base {
                return Ok(Verdict::Foreign("belay had closed the database and left no log"));
            }
        } else if is_same_log {
            return Ok(match (log.frames < mark.frames, is_base || in_log) {
                (true, _) if has_pending => Verdict::Cut,
                (false, false) => Verdict::Foreign("another database file was put in the place of its own"),
                _ => Verdict::Fine,
            });
        } else if has_pending && is_base && !has_log {
            return Ok(Verdict::Missing);
        } else if has_pending && is_base && mark.done == 0 {
            // With a part of its log in the file, the rest changes the page no more, and a new log may follow: a loss of
            // power may have left a mark that is older than the log.
            return Ok(Verdict::Foreign("it is not the log that belay has written"));
        }
    }
    // The change counter of a database never goes back.
    let counter = header.last_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
    if has_log && log.counter.is_some_and(|of_log| of_log < counter) {
        return Ok(Verdict::Foreign("it is older than the database file"));
    }
    Ok(Verdict::Fine)
}

/// The digest of a page of the database file; `None`: the file ends before.
fn page_digest(file: &File, page: u32, page_size: u32) -> Option<u64> {
    let mut content = vec![0; page_size as usize];
    let at = u64::from(page).checked_sub(1)? * u64::from(page_size);
    file.read_exact_at(&mut content, at).ok()?;
    Some(digest(&content))
}
