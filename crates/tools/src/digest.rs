//! Digests that approvals are bound to. A file that was changed after the approval has another digest.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

/// Largest file whose content is hashed. 16 MiB takes some 30 ms, and the digest is computed twice: for the question,
/// and right before the call. A larger file is identified by its size, its inode and the time of its last change.
const MAX_HASHED_BYTES: u64 = 16 * 1024 * 1024;

/// blake3 of these bytes, in hex.
pub(crate) fn of_bytes(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// blake3 of everything that the reader returns, in hex.
pub(crate) fn of_all(mut from: impl Read) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    io::copy(&mut from, &mut hasher)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// Identifies the content of a file: its blake3 digest, or for a large file its size, inode and change time.
pub(crate) fn of_file(file: &mut File) -> io::Result<String> {
    let metadata = file.metadata()?;
    if metadata.len() > MAX_HASHED_BYTES {
        return Ok(format!(
            "{} bytes, inode {}, changed at {}.{:09}",
            metadata.len(),
            metadata.ino(),
            metadata.ctime(),
            metadata.ctime_nsec()
        ));
    }
    // Reads at most this much: a file that grows while it is read gets another digest next time.
    of_all(file.take(MAX_HASHED_BYTES))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_changed_file_has_another_digest_small_or_large() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let digest = || {
            let mut opened = File::open(file.path()).unwrap();
            of_file(&mut opened).unwrap()
        };
        assert_eq!(digest(), of_bytes(b""));
        std::fs::write(file.path(), "a").unwrap();
        assert_eq!(digest(), of_bytes(b"a"));
        file.as_file().set_len(MAX_HASHED_BYTES + 1).unwrap();
        let sparse = of_file(&mut File::open(file.path()).unwrap()).unwrap();
        assert!(sparse.starts_with("16777217 bytes"), "{sparse}");
        file.as_file_mut().set_len(MAX_HASHED_BYTES + 2).unwrap();
        file.write_all(b"x").unwrap();
        assert_ne!(sparse, of_file(&mut File::open(file.path()).unwrap()).unwrap());
    }
}
