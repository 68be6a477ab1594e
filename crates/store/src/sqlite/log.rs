//! Reading a write-ahead log without SQLite.
//!
//! Source: SQLite, "WAL-mode File Format" (<https://www.sqlite.org/walformat.html>). Reading the log by another descriptor
//! is safe at any time: SQLite locks the database file and its index, and never the log.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::Path;

/// The bytes before the first frame.
pub(super) const HEADER_BYTES: u64 = 32;

/// The bytes before the page of a frame.
pub(super) const FRAME_HEADER_BYTES: u64 = 24;

/// The offset of the salts in the header. They change each time when SQLite begins the log anew.
pub(super) const SALTS_AT: u64 = 16;

/// The committed content of a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Log {
    pub(super) salts: u64,
    pub(super) page_size: u32,
    /// The frames up to the last commit; 0: SQLite would ignore the log.
    pub(super) frames: u64,
    /// The digests of the versions of one page, in order.
    pub(super) versions: Vec<u64>,
    /// The lowest change counter in the versions of the first page.
    pub(super) counter: Option<u32>,
}

/// Distinguishes the contents of a page. It is no protection against intent.
pub(super) fn digest(page: &[u8]) -> u64 {
    let words = page.chunks_exact(8).filter_map(|word| Some(u64::from_le_bytes(*word.first_chunk()?)));
    words
        .fold(0xcbf2_9ce4_8422_2325, |digest, word| (digest ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29))
}

/// Reads the log up to its last commit, and the versions of this page in it. A missing log is an empty one.
pub(super) fn read(path: &Path, page: Option<u32>) -> io::Result<Log> {
    match File::open(path) {
        Ok(file) => read_from(&mut BufReader::with_capacity(1 << 16, file), page),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Log::default()),
        Err(error) => Err(error),
    }
}

fn read_from(file: &mut impl Read, page: Option<u32>) -> io::Result<Log> {
    let mut header = [0; HEADER_BYTES as usize];
    if !filled(file, &mut header)? {
        return Ok(Log::default());
    }
    let (magic, page_size) = (number(&header, 0), number(&header, 8));
    let is_known = magic & !1 == 0x377f_0682 && page_size.is_power_of_two() && (512..=65_536).contains(&page_size);
    let mut sums = Sums { big_endian: magic & 1 == 1, first: 0, second: 0 };
    sums.add(&header[..24]);
    if !is_known || !sums.are(&header[24..]) {
        return Ok(Log::default());
    }
    let mut log = Log { salts: salts(&header[16..24]), page_size, ..Log::default() };
    let (mut head, mut content) = ([0; FRAME_HEADER_BYTES as usize], vec![0; page_size as usize]);
    let (mut frames, mut versions, mut counter) = (0, Vec::new(), None::<u32>);
    while filled(file, &mut head)? && filled(file, &mut content)? {
        sums.add(&head[..8]);
        sums.add(&content);
        if salts(&head[8..16]) != log.salts || !sums.are(&head[16..]) {
            break;
        }
        frames += 1;
        if page == Some(number(&head, 0)) {
            versions.push(digest(&content));
        }
        if number(&head, 0) == 1 {
            let found = number(&content, 24);
            counter = Some(counter.map_or(found, |lowest| lowest.min(found)));
        }
        if number(&head, 4) > 0 {
            // The last frame of a transaction.
            log.frames = frames;
            log.versions.append(&mut versions);
            log.counter = counter;
        }
    }
    Ok(log)
}

/// The salts as one number.
pub(super) fn salts(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Fills the buffer; `false`: the file ends before.
fn filled(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The checksum of the log so far.
struct Sums {
    big_endian: bool,
    first: u32,
    second: u32,
}

impl Sums {
    fn add(&mut self, bytes: &[u8]) {
        for pair in bytes.chunks_exact(8) {
            let (first, second) = pair.split_at(4);
            self.first = self.first.wrapping_add(self.word(first)).wrapping_add(self.second);
            self.second = self.second.wrapping_add(self.word(second)).wrapping_add(self.first);
        }
    }

    fn word(&self, bytes: &[u8]) -> u32 {
        let word = number(bytes, 0);
        if self.big_endian { word } else { word.swap_bytes() }
    }

    fn are(&self, bytes: &[u8]) -> bool {
        (number(bytes, 0), number(bytes, 4)) == (self.first, self.second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_up_to_its_last_commit_and_one_that_sqlite_would_ignore_is_empty() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, log) = (folder.path().join("a.db"), folder.path().join("a.db-wal"));
        let conn = rusqlite::Connection::open(&path).expect("opens");
        conn.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x); INSERT INTO t VALUES (1);").expect("writes");
        let root: u32 = conn.query_row("SELECT rootpage FROM sqlite_schema", [], |row| row.get(0)).expect("a table");
        let frames =
            || conn.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get::<_, u32>(1)).expect("a log").into();
        let one = read(&log, Some(root)).expect("readable");
        assert_eq!((one.frames, one.page_size, one.versions.len()), (frames(), 4096, 2));
        conn.execute_batch("INSERT INTO t VALUES (2)").expect("writes");
        let two = read(&log, Some(root)).expect("readable");
        assert_eq!((two.frames, two.salts, two.versions.len()), (frames(), one.salts, 3));
        assert_eq!(two.versions[..2], one.versions);

        let bytes = std::fs::read(&log).expect("readable");
        let of = |bytes: &[u8]| read_from(&mut &*bytes, None).expect("readable").frames;
        assert_eq!(of(&bytes[..bytes.len() - 1]), one.frames, "the second transaction is cut");
        assert_eq!([of(&[]), of(&[0; 5000]), of(&bytes[..20])], [0; 3]);
        let mut damaged = bytes.clone();
        damaged[60] ^= 1;
        assert_eq!(of(&damaged), 0);
        assert_eq!(read(&folder.path().join("none"), None).expect("nothing"), Log::default());
    }
}
