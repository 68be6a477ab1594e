//! Files by their digest: a directory beside the database, or memory.
//!
//! A file is written under a temporary name (0600), synchronised, and renamed to its digest. So a name that is a digest
//! always has the whole file, and a crash leaves at most a temporary file, which [`BlobStore::older_than`] removes.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use aws_lc_rs::digest::{Context, Digest, SHA256, digest};
use belay_protocol::{BlobDigest, BlobStore, BlobWriter, ByteStream, StoreError, UnixMillis};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use tokio::fs::{DirBuilder, File, OpenOptions};
use tokio::io::AsyncWriteExt;
use tokio::task::spawn_blocking;
use tokio_util::io::ReaderStream;
use uuid::Uuid;

/// The ending of the names of files that are being written.
const UNFINISHED: &str = ".part";

/// Length of a piece of a file that is read in pieces, in bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// Files by their digest. Clones share them.
#[derive(Clone)]
pub struct Blobs(Place);

#[derive(Clone)]
enum Place {
    Directory(Arc<Directory>),
    Memory(Arc<Mutex<HashMap<BlobDigest, Bytes>>>),
}

struct Directory {
    path: PathBuf,
    /// Held while a file gets its name or is removed, so that a file that was just written again is not removed. Never
    /// held over an `.await`.
    names: Mutex<()>,
}

impl Blobs {
    /// Files in this directory, which the first write creates (0700).
    pub fn in_directory(path: PathBuf) -> Self {
        Self(Place::Directory(Arc::new(Directory { path, names: Mutex::default() })))
    }

    /// Files in memory. They are lost with the last clone.
    pub fn in_memory() -> Self {
        Self(Place::Memory(Arc::default()))
    }
}

#[async_trait]
impl BlobStore for Blobs {
    fn digest(&self, bytes: &[u8]) -> Result<BlobDigest, StoreError> {
        in_hex(&digest(&SHA256, bytes))
    }

    async fn begin(&self) -> Result<Box<dyn BlobWriter>, StoreError> {
        let to = match &self.0 {
            Place::Memory(blobs) => Destination::Memory(BytesMut::new(), blobs.clone()),
            Place::Directory(directory) => {
                DirBuilder::new().recursive(true).mode(0o700).create(&directory.path).await.map_err(failed)?;
                let unfinished = Unfinished(directory.path.join(format!("{}{UNFINISHED}", Uuid::now_v7())));
                let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished.0).await;
                Destination::File(file.map_err(failed)?, unfinished, directory.clone())
            }
        };
        Ok(Box::new(Writer { digest: Context::new(&SHA256), to }))
    }

    async fn read(&self, digest: &BlobDigest) -> Result<Option<Bytes>, StoreError> {
        match &self.0 {
            Place::Memory(blobs) => Ok(lock(blobs).get(digest).cloned()),
            Place::Directory(directory) => match tokio::fs::read(directory.path.join(digest.as_str())).await {
                Ok(bytes) => Ok(Some(bytes.into())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(failed(error)),
            },
        }
    }

    async fn stream(&self, digest: &BlobDigest) -> Result<Option<ByteStream>, StoreError> {
        let directory = match &self.0 {
            Place::Memory(blobs) => {
                let found = lock(blobs).get(digest).cloned();
                return Ok(found.map(|bytes| stream::iter([Ok(bytes)]).boxed()));
            }
            Place::Directory(directory) => directory,
        };
        match File::open(directory.path.join(digest.as_str())).await {
            Ok(file) => Ok(Some(ReaderStream::with_capacity(file, PIECE_BYTES).boxed())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    async fn older_than(&self, before: UnixMillis) -> Result<Vec<BlobDigest>, StoreError> {
        match &self.0 {
            Place::Memory(_) => Ok(Vec::new()), // it ends with the process
            Place::Directory(directory) => {
                let directory = directory.clone();
                blocking(move || directory.older_than(instant(before))).await
            }
        }
    }

    async fn remove(&self, digests: &[BlobDigest], before: UnixMillis) -> Result<u64, StoreError> {
        match &self.0 {
            Place::Memory(blobs) => {
                let mut blobs = lock(blobs);
                Ok(digests.iter().filter(|digest| blobs.remove(*digest).is_some()).count() as u64)
            }
            Place::Directory(directory) => {
                let (directory, digests) = (directory.clone(), digests.to_vec());
                blocking(move || directory.remove(&digests, instant(before))).await
            }
        }
    }
}

impl Directory {
    /// The files that were written before the instant. Removes files that a crash left unfinished before it.
    fn older_than(&self, before: SystemTime) -> io::Result<Vec<BlobDigest>> {
        let entries = match std::fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut old = Vec::new();
        for entry in entries {
            let entry = entry?;
            if !is_older(&entry.path(), before)? {
                continue;
            }
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.ends_with(UNFINISHED) {
                remove_file(&entry.path())?;
            } else if let Ok(digest) = name.parse() {
                old.push(digest);
            }
        }
        Ok(old)
    }

    fn remove(&self, digests: &[BlobDigest], before: SystemTime) -> io::Result<u64> {
        let mut removed = 0;
        for digest in digests {
            let path = self.path.join(digest.as_str());
            let _names = lock(&self.names);
            if is_older(&path, before)? {
                remove_file(&path)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Gives a complete file its name, durably.
    fn keep(&self, unfinished: &Path, digest: &BlobDigest) -> io::Result<()> {
        let _names = lock(&self.names);
        std::fs::rename(unfinished, self.path.join(digest.as_str()))?;
        std::fs::File::open(&self.path)?.sync_all()
    }
}

/// Removes a file, which another sweep may have removed already.
fn remove_file(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether a file exists and was written before the instant.
fn is_older(path: &Path, before: SystemTime) -> io::Result<bool> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(found.is_file() && found.modified()? < before),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

struct Writer {
    digest: Context,
    to: Destination,
}

enum Destination {
    Memory(BytesMut, Arc<Mutex<HashMap<BlobDigest, Bytes>>>),
    File(File, Unfinished, Arc<Directory>),
}

/// The path of a file that is being written. Dropping it removes the file.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After the file got its name, nothing is left here. A failure leaves a file that the sweep removes.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[async_trait]
impl BlobWriter for Writer {
    async fn write(&mut self, piece: &Bytes) -> Result<(), StoreError> {
        self.digest.update(piece);
        match &mut self.to {
            Destination::Memory(bytes, _) => {
                bytes.extend_from_slice(piece);
                Ok(())
            }
            Destination::File(file, ..) => file.write_all(piece).await.map_err(failed),
        }
    }

    async fn finish(self: Box<Self>) -> Result<BlobDigest, StoreError> {
        let Self { digest, to } = *self;
        let digest = in_hex(&digest.finish())?;
        match to {
            Destination::Memory(bytes, blobs) => {
                lock(&blobs).insert(digest.clone(), bytes.freeze());
            }
            Destination::File(mut file, unfinished, directory) => {
                file.flush().await.map_err(failed)?;
                file.sync_all().await.map_err(failed)?;
                let named = digest.clone();
                blocking(move || directory.keep(&unfinished.0, &named)).await?;
            }
        }
        Ok(digest)
    }
}

fn in_hex(digest: &Digest) -> Result<BlobDigest, StoreError> {
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    hex.parse().map_err(|what: &str| StoreError::Unavailable(what.to_owned()))
}

fn instant(at: UnixMillis) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(at.0).unwrap_or(0))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, StoreError> {
    match spawn_blocking(work).await {
        Ok(done) => done.map_err(failed),
        Err(broken) => Err(StoreError::Unavailable(format!("a thread of the file store panicked: {broken}"))),
    }
}

fn failed(error: io::Error) -> StoreError {
    StoreError::Unavailable(format!("the files of messages cannot be stored or read: {error}"))
}

/// A panic under these locks leaves no state half changed.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// After every file that a test writes: 2100-01-01.
    const LATER: UnixMillis = UnixMillis(4_102_444_800_000);

    async fn put(blobs: &Blobs, pieces: &[&'static str]) -> BlobDigest {
        let mut writer = blobs.begin().await.unwrap();
        for piece in pieces {
            writer.write(&Bytes::from_static(piece.as_bytes())).await.unwrap();
        }
        writer.finish().await.unwrap()
    }

    async fn streamed(blobs: &Blobs, digest: &BlobDigest) -> Option<String> {
        let pieces: Vec<_> = blobs.stream(digest).await.unwrap()?.collect().await;
        Some(pieces.into_iter().map(|piece| String::from_utf8(piece.unwrap().to_vec()).unwrap()).collect())
    }

    #[tokio::test]
    async fn a_file_is_found_by_the_digest_of_its_bytes() {
        let directory = tempfile::tempdir().unwrap();
        for blobs in [Blobs::in_memory(), Blobs::in_directory(directory.path().join("files"))] {
            let digest = put(&blobs, &["a", "bc"]).await;
            // Source: FIPS 180-2, appendix B.1.
            assert_eq!(digest.as_str(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
            assert_eq!(put(&blobs, &["abc"]).await, digest);
            assert_eq!(blobs.digest(b"abc").unwrap(), digest);
            assert_eq!(blobs.read(&digest).await.unwrap().unwrap(), "abc");
            assert_eq!(streamed(&blobs, &digest).await.unwrap(), "abc");
            let other = "0".repeat(64).parse().unwrap();
            assert_eq!(blobs.read(&other).await.unwrap(), None);
            assert_eq!(streamed(&blobs, &other).await, None);
            assert_eq!(blobs.remove(&[digest.clone(), other], LATER).await.unwrap(), 1);
            assert_eq!(blobs.read(&digest).await.unwrap(), None);
        }
    }

    #[tokio::test]
    async fn only_the_owner_can_read_and_an_unfinished_file_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("files");
        let blobs = Blobs::in_directory(path.clone());
        let digest = put(&blobs, &["secret"]).await;
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&path.join(digest.as_str()))), (0o700, 0o600));
        let mut writer = blobs.begin().await.unwrap();
        writer.write(&Bytes::from_static(b"half")).await.unwrap();
        drop(writer);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
        // A crash leaves such a file.
        std::fs::write(path.join("x.part"), "half").unwrap();
        assert_eq!(blobs.older_than(LATER).await.unwrap(), [digest]);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_file_that_was_written_again_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let blobs = Blobs::in_directory(directory.path().join("files"));
        assert!(blobs.older_than(LATER).await.unwrap().is_empty(), "there is no directory yet");
        let digest = put(&blobs, &["x"]).await;
        let long_ago = UnixMillis(1000);
        assert!(blobs.older_than(long_ago).await.unwrap().is_empty());
        assert_eq!(blobs.remove(std::slice::from_ref(&digest), long_ago).await.unwrap(), 0);
        assert!(blobs.read(&digest).await.unwrap().is_some());
    }
}
