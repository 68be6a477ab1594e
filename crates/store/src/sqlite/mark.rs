//! The mark: a small file beside the database that says what its write-ahead log holds.
//!
//! Nothing in SQLite binds a log to its database: a start that finds no log takes the database as it is, and one that
//! finds the log of another database applies it. The mark makes both visible.
//!
//! The mark is written after each commit and is not synchronised then. So it never names more than is durable, and a mark
//! that a loss of power has kept from the disk leads to no conclusion. [`Mark::begin`] says why one write is synchronised.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::sqlite::with_suffix;

/// The ending of its name.
pub(crate) const SUFFIX: &str = "-mark";

/// The size of the file: one line, so that each write replaces the one before.
const BYTES: usize = 128;

/// What the last process that wrote the database has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// Whether that process closed the database, with everything in its file.
    pub(super) closed: bool,
    /// The page that each log changes, see [`FileGuard`](super::guard::FileGuard); 0: nothing is known.
    pub(super) page: u32,
    /// The digest of that page in the database file.
    pub(super) base: u64,
    /// The salts of the log.
    pub(super) salts: u64,
    /// The committed frames of the log.
    pub(super) frames: u64,
    /// How many of them are in the database file.
    pub(super) done: u64,
}

impl Mark {
    /// Reads the mark of a database; `None`: there is none that can be read.
    pub(super) fn of(database: &Path) -> Option<Self> {
        let mut text = String::new();
        let file = File::open(with_suffix(database, SUFFIX)).ok()?;
        file.take(BYTES as u64).read_to_string(&mut text).ok()?;
        let fields: Vec<_> = text.split_whitespace().collect();
        let &["1", state, page, base, salts, frames, done] = fields.as_slice() else { return None };
        Some(Self {
            closed: state == "closed",
            page: page.parse().ok()?,
            base: u64::from_str_radix(base, 16).ok()?,
            salts: u64::from_str_radix(salts, 16).ok()?,
            frames: frames.parse().ok()?,
            done: done.parse().ok()?,
        })
    }

    /// Replaces the mark of the process before, if there is one, by one that says nothing. It is synchronised: after a loss
    /// of power, the mark of a closed database must not stand beside a log that was written since.
    pub(super) fn begin(database: &Path) -> io::Result<()> {
        match File::options().write(true).open(with_suffix(database, SUFFIX)) {
            Ok(file) => {
                Self::default().write(&file)?;
                file.sync_data()
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Writes the mark, without a synchronisation.
    pub(super) fn write(&self, file: &File) -> io::Result<()> {
        let Self { closed, page, base, salts, frames, done } = self;
        let state = if *closed { "closed" } else { "open" };
        let mut line = [b' '; BYTES];
        line[BYTES - 1] = b'\n';
        write!(&mut line[..], "1 {state} {page} {base:016x} {salts:016x} {frames} {done}")?;
        file.write_all_at(&line, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_a_torn_one_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let (database, path) = (folder.path().join("a.db"), folder.path().join("a.db-mark"));
        assert_eq!(Mark::of(&database), None);
        Mark::begin(&database).expect("there is nothing to replace");
        let file = File::create(&path).expect("a file");
        let most = Mark { closed: true, page: u32::MAX, base: u64::MAX, salts: 1, frames: u64::MAX, done: u64::MAX };
        for mark in [most, Mark { closed: false, base: 7, ..most }, Mark::default()] {
            mark.write(&file).expect("written");
            assert_eq!(Mark::of(&database), Some(mark));
        }
        most.write(&file).expect("written");
        Mark::begin(&database).expect("replaced");
        assert_eq!(Mark::of(&database), Some(Mark::default()));
        for torn in ["", "1 closed 3", "2 open 1 1 1 1 1", "\0\0\0\0"] {
            std::fs::write(&path, torn).expect("written");
            assert_eq!(Mark::of(&database), None, "{torn:?}");
        }
    }
}
