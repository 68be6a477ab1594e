//! Notices that the files of an open database were deleted, replaced or overwritten.
//!
//! SQLite writes on in such a file, and every commit is lost with the process. The guard compares the files at the paths
//! with the open ones, and one page of the database file with what a checkpoint can have written there: the page of the
//! table `pings`. The first transaction of each log writes a new number, the *stamp*, into that page. So each complete
//! checkpoint changes it, and an older copy of the file has another content. Reading the file, changing its attributes and
//! linking it change nothing that the guard compares.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tracing::{error, warn};

use super::log::{self, FRAME_HEADER_BYTES, HEADER_BYTES, SALTS_AT, digest, salts};
use super::mark::{Mark, SUFFIX};
use super::open::real;
use super::{Locks, with_suffix};
use crate::error::OpenError;

/// The time between two checks while nothing is written.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// The shortest time between two looks at the paths. The page is read before each transaction.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The attempts to read a page that another process may just be writing in a checkpoint, and the pause between them.
const READS: u32 = 3;
const READ_PAUSE: Duration = Duration::from_millis(50);

/// Why nothing is written any more; empty: all is well.
pub(crate) type Trouble = Arc<OnceLock<String>>;

/// The guard of one open database. Its thread owns it.
pub(crate) struct FileGuard {
    /// The path of the settings, which a start would open.
    path: PathBuf,
    /// The files at their paths, with device and inode: the database, its log, the index of the log.
    files: [(PathBuf, (u64, u64)); 3],
    /// The log. Opened once: a file that takes its place is another one.
    log: File,
    marks: File,
    mark: Mark,
    /// The page of the mark, as it was last read.
    page: Vec<u8>,
    /// The length of the database file that was last found good.
    bytes: u64,
    /// What a checkpoint of the log of the process before may write into the page.
    versions: Vec<u64>,
    /// The stamp of the last committed transaction that wrote one.
    stamp: Option<u32>,
    /// The stamp of the open transaction.
    new_stamp: Option<u32>,
    /// Whether the next transaction begins a log.
    needs_stamp: bool,
    looked: Instant,
    checked: Instant,
    trouble: Trouble,
    /// The open database. Dropped after the connection, see there.
    locks: Arc<Option<Locks>>,
}

impl FileGuard {
    /// Guards the database of this connection. `None`: there is no descriptor of the database file, or SQLite keeps no log on
    /// this file system.
    ///
    /// # Errors
    /// [`OpenError::Io`], [`OpenError::Database`].
    pub(crate) fn new(conn: &Connection, path: &Path, locks: Arc<Option<Locks>>) -> Result<Option<Self>, OpenError> {
        let Some(database) = locks.as_ref().as_ref().and_then(Locks::database) else { return Ok(None) };
        // The read creates the log and its index.
        let page = page_number(conn)?;
        let page_size = conn.pragma_query_value(None, "page_size", |row| row.get::<_, u32>(0))?;
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Io { path, source }
        };
        let place = real(path);
        let opened = database.metadata().map_err(io(path))?;
        let [log, index] = ["-wal", "-shm"].map(|suffix| with_suffix(&place, suffix));
        let (log_file, found) = match (File::open(&log), std::fs::metadata(&index)) {
            (Ok(log_file), Ok(found)) => (log_file, found),
            (log_file, found) => {
                let error = log_file.err().or(found.err());
                warn!(?error, path = %path.display(), "the database has no write-ahead log here; its files are not watched");
                return Ok(None);
            }
        };
        let (log_id, index_id) = (id(&log_file.metadata().map_err(io(&log))?), id(&found));
        let marks_path = with_suffix(&place, SUFFIX);
        let marks = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&marks_path);
        let versions = log::read(&log, Some(page)).map_err(io(&log))?.versions;
        let (bytes, now) = (opened.len(), Instant::now());
        let mut guard = Self {
            path: path.to_owned(),
            files: [(path.to_owned(), id(&opened)), (log, log_id), (index, index_id)],
            log: log_file,
            marks: marks.map_err(io(&marks_path))?,
            mark: Mark { page, ..Mark::default() },
            page: vec![0; page_size as usize],
            bytes,
            versions,
            stamp: None,
            new_stamp: None,
            needs_stamp: true,
            looked: now.checked_sub(LOOK_EVERY).unwrap_or(now),
            checked: now,
            trouble: Trouble::default(),
            locks,
        };
        guard.mark.base = guard.read_page().map_err(io(path))?;
        // What a kill has left is in the log until the first checkpoint.
        if let (Some((frames, done)), Some(salts)) = (log_state(conn), guard.salts()) {
            guard.mark = Mark { salts, frames, done, ..guard.mark };
            guard.write_mark();
        }
        Ok(Some(guard))
    }

    /// Why nothing is written any more.
    pub(crate) fn trouble(&self) -> &Trouble {
        &self.trouble
    }

    /// The time of the next check without a write.
    pub(crate) fn next_check(&self) -> Option<Instant> {
        self.trouble.get().is_none().then(|| self.checked + CHECK_EVERY)
    }

    /// Checks the files. After the first trouble, it says the same for ever.
    pub(crate) fn check(&mut self, conn: &Connection) -> Result<(), String> {
        if let Some(trouble) = self.trouble.get() {
            return Err(trouble.clone());
        }
        self.checked = Instant::now();
        let found = self.content(conn).and_then(|()| self.paths()).and_then(|()| self.log_content(conn));
        found.map_err(|trouble| {
            error!("{trouble}");
            self.trouble.get_or_init(|| trouble).clone()
        })
    }

    /// Writes a stamp into the open transaction if it is the first of a log.
    pub(crate) fn begun(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        self.new_stamp = None;
        if self.needs_stamp {
            // In the upper half, because readiness checks count in the lower one.
            // The highest bit but the sign makes all of them eight bytes long.
            let sql = "UPDATE pings SET count = (random() & 1073741823 | 1073741824) << 32 RETURNING count >> 32";
            self.new_stamp = Some(conn.prepare_cached(sql)?.query_row([], |row| row.get(0))?);
        }
        Ok(())
    }

    /// Notes a commit.
    pub(crate) fn committed(&mut self, conn: &Connection) -> Result<(), String> {
        let new_stamp = self.new_stamp.take();
        if new_stamp.is_some() {
            (self.stamp, self.needs_stamp) = (new_stamp, false);
        }
        let (Some((frames, done)), Some(salts)) = (log_state(conn), self.salts()) else { return Ok(()) };
        let is_new_log = salts != self.mark.salts;
        let is_checkpointed = done != self.mark.done || is_new_log;
        self.mark = Mark { salts, frames, done, ..self.mark };
        // Another process may have emptied the log, so that this transaction was the first one of it.
        self.needs_stamp |= frames == done || (is_new_log && new_stamp.is_none());
        // A checkpoint has written the page, before the next transaction begins the log anew.
        let checked = if is_checkpointed { self.check(conn) } else { Ok(()) };
        self.write_mark();
        checked
    }

    /// Leaves a database file that needs no log. If the file is not that of this process, the log stays: a checkpoint would
    /// damage what is in its place.
    pub(crate) fn finish(&mut self, conn: &Connection) {
        let is_own = self.content(conn).is_ok() && self.log_content(conn).is_ok() && self.is_at(&self.files[0]).is_ok();
        if !is_own {
            if let Err(error) = conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
                error!(%error, path = %self.path.display(), "the write-ahead log may be written into the file");
            }
            return;
        }
        let done = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        match done {
            Ok(0) => {
                let base = self.read_page().unwrap_or(0);
                self.mark = Mark { closed: true, page: self.mark.page, base, ..Mark::default() };
                self.write_mark();
            }
            done => warn!(?done, "the log stays beside the database; the next start reads it"),
        }
    }

    fn write_mark(&self) {
        if let Err(error) = self.mark.write(&self.marks) {
            warn!(%error, path = %self.path.display(), "the mark beside the database cannot be written");
        }
    }

    /// Compares the files at the paths with the open ones.
    fn paths(&mut self) -> Result<(), String> {
        if self.looked.elapsed() < LOOK_EVERY {
            return Ok(());
        }
        self.looked = Instant::now();
        self.files.iter().try_for_each(|file| self.is_at(file))
    }

    fn is_at(&self, (path, opened): &(PathBuf, (u64, u64))) -> Result<(), String> {
        let what = match std::fs::metadata(path) {
            Ok(found) if id(&found) == *opened => return Ok(()),
            Ok(_) => "was replaced by another file",
            Err(error) if error.kind() == ErrorKind::NotFound => "was deleted",
            Err(_) => return Ok(()), // a directory that may not be read is no other file
        };
        if *path == self.path {
            return Err(self.lost(what));
        }
        Err(format!(
            "{} {what} while belay runs, so belay accepts nothing more. Its end writes everything into {}: end it, and start \
             it again",
            path.display(),
            self.path.display()
        ))
    }

    /// Compares the page, and the length of the file, with what SQLite can have written.
    fn content(&mut self, conn: &Connection) -> Result<(), String> {
        for _ in 0..READS {
            if self.is_content_own(conn) {
                return Ok(());
            }
            std::thread::sleep(READ_PAUSE);
        }
        Err(self.lost("was overwritten"))
    }

    fn is_content_own(&mut self, conn: &Connection) -> bool {
        let Some(bytes) = self.database().map(|file| file.metadata().map(|found| found.len())) else { return true };
        let (page, bytes) = match (self.read_page(), bytes) {
            (Ok(page), Ok(bytes)) => (page, bytes),
            (Err(error), Ok(bytes)) if error.kind() == ErrorKind::UnexpectedEof => return self.has_moved(conn, bytes),
            _ => return true, // a disk that fails is no other file
        };
        if page != self.mark.base {
            let is_own = self.versions.contains(&page) || self.stamp.is_some_and(|stamp| self.has_stamp(stamp));
            if is_own {
                (self.mark.base, self.bytes) = (page, bytes);
            }
            return is_own || self.has_moved(conn, bytes);
        }
        // Only a checkpoint shortens the file, to the size that SQLite then reports.
        if bytes < self.bytes {
            let pages = conn.pragma_query_value(None, "page_count", |row| row.get::<_, u32>(0));
            if !pages.is_ok_and(|pages| u64::from(pages) * self.page.len() as u64 == bytes) {
                return false;
            }
        }
        self.bytes = bytes;
        true
    }

    /// Whether the page has another number now, as after a `VACUUM` of another program. It still has the stamp then.
    fn has_moved(&mut self, conn: &Connection, bytes: u64) -> bool {
        let Some(page) = page_number(conn).ok().filter(|page| *page != self.mark.page) else { return false };
        let former = std::mem::replace(&mut self.mark.page, page);
        let base = self.read_page().ok().filter(|_| self.stamp.is_some_and(|stamp| self.has_stamp(stamp)));
        match base {
            Some(base) => (self.mark.base, self.bytes) = (base, bytes),
            None => self.mark.page = former,
        }
        base.is_some()
    }

    /// Compares the log with the one of the last commit. Another process may have begun it anew.
    fn log_content(&self, conn: &Connection) -> Result<(), String> {
        let Mark { salts, frames, .. } = self.mark;
        if frames == 0
            || self.salts() == Some(salts) && self.log.metadata().is_ok_and(|log| log.len() >= self.log_bytes())
        {
            return Ok(());
        }
        match log_state(conn) {
            Some((found, _)) if found == frames => Err(format!(
                "the write-ahead log {} was overwritten while belay runs, so belay accepts nothing more, and what was \
                 written last is lost. End belay, restore a backup (`belay backup restore FILE --force`), and start it again",
                self.files[1].0.display()
            )),
            _ => Ok(()),
        }
    }

    /// The bytes of the log up to the last commit.
    fn log_bytes(&self) -> u64 {
        HEADER_BYTES + self.mark.frames * (FRAME_HEADER_BYTES + self.page.len() as u64)
    }

    fn lost(&self, what: &str) -> String {
        format!(
            "the database file {} {what} while belay runs, so belay accepts nothing more. What was in the file is lost, except \
             in copies of it. End belay, restore a backup (`belay backup restore FILE --force`), and start it again",
            self.path.display()
        )
    }

    fn database(&self) -> Option<&File> {
        self.locks.as_ref().as_ref().and_then(Locks::database)
    }

    /// Reads the page, and returns its digest.
    fn read_page(&mut self) -> io::Result<u64> {
        let Self { locks, page, mark, .. } = self;
        let database = locks.as_ref().as_ref().and_then(Locks::database).ok_or(ErrorKind::NotFound)?;
        let at = u64::from(mark.page.saturating_sub(1)) * page.len() as u64;
        database.read_exact_at(page, at)?;
        Ok(digest(page))
    }

    /// Whether the page that was last read has this stamp. A row has its numbers in this order of bytes.
    fn has_stamp(&self, stamp: u32) -> bool {
        self.page.windows(4).any(|bytes| bytes == stamp.to_be_bytes())
    }

    fn salts(&self) -> Option<u64> {
        let mut bytes = [0; 8];
        self.log.read_exact_at(&mut bytes, SALTS_AT).ok()?;
        Some(salts(&bytes))
    }
}

/// The committed frames of the log, and how many of them are in the database file. It does nothing else.
fn log_state(conn: &Connection) -> Option<(u64, u64)> {
    let mut state = conn.prepare_cached("PRAGMA wal_checkpoint(NOOP)").ok()?;
    state.query_row([], |row| Ok((row.get::<_, u32>(1)?.into(), row.get::<_, u32>(2)?.into()))).ok()
}

/// The number of the page with the stamp: that of the table `pings`.
fn page_number(conn: &Connection) -> rusqlite::Result<u32> {
    conn.query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'pings'", [], |row| row.get(0))
}

/// Device and inode.
fn id(file: &std::fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unfinished::Unfinished;

    #[test]
    fn files_are_checked_each_minute_until_one_is_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("belay.db");
        let (conn, locks) = crate::sqlite::open_writer(&path, true, Unfinished::Refuse).expect("opens");
        let guard = FileGuard::new(&conn, &path, Arc::new(locks)).expect("readable");
        let mut guard = guard.expect("there is a log");
        guard.checked = guard.checked.checked_sub(CHECK_EVERY).expect("the machine has run for a minute");
        assert!(guard.next_check().is_some_and(|due| due <= Instant::now()));
        guard.check(&conn).expect("all is well");
        assert!(guard.next_check().is_some_and(|due| due > Instant::now()));
        std::fs::remove_file(&path).expect("removed");
        guard.looked = guard.looked.checked_sub(LOOK_EVERY).expect("the same");
        guard.check(&conn).expect_err("it is gone");
        assert_eq!(guard.next_check(), None);
        drop((conn, guard));
    }
}
