//! Files by their digest: a directory beside the database, a table of the database, or memory.
//!
//! The table is for several daemons that share a database and no directory. In the directory, a file is written under a temporary name (0600), synchronised, and renamed to its digest. So a name that is a digest
//! always has the whole file, and a crash leaves at most a temporary file, which [`BlobStore::older_than`] removes.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use aws_lc_rs::digest::{Context, Digest, SHA256, digest};
use belay_protocol::{BlobDigest, BlobStore, BlobWriter, ByteStream, Clock, StoreError, UnixMillis};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use tokio::fs::{DirBuilder, File, OpenOptions};
use tokio::io::AsyncWriteExt;
use tokio::task::spawn_blocking;
use tokio_util::io::ReaderStream;
use uuid::Uuid;

use crate::parts::PartBuffer;
use crate::sql::SqlStore;

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
    Table(SqlStore, Arc<dyn Clock>),
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

    /// Files in a table of the store's database. A file that something refers to is not removed.
    ///
    /// A crash, or a drop of a [`BlobWriter`], may leave parts of a file, which [`BlobStore::older_than`] removes. Writing
    /// a file takes a commit for each 256 KiB.
    pub fn in_table(store: SqlStore, clock: Arc<dyn Clock>) -> Self {
        Self(Place::Table(store, clock))
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
            Place::Table(store, clock) => Destination::Table(Box::new(Parts::new(store.clone(), clock.clone()))),
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
            Place::Table(store, _) => {
                let count = store.blob_parts(digest).await?;
                let mut bytes = BytesMut::new();
                for part in 0..count {
                    bytes.extend_from_slice(&part_of(store, digest, part).await?);
                }
                Ok((count > 0).then(|| bytes.freeze()))
            }
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
            Place::Table(store, _) => {
                let count = store.blob_parts(digest).await?;
                let (store, digest) = (store.clone(), digest.clone());
                let parts = stream::iter(0..count).then(move |part| {
                    let (store, digest) = (store.clone(), digest.clone());
                    async move { part_of(&store, &digest, part).await.map(Bytes::from).map_err(io::Error::other) }
                });
                return Ok((count > 0).then(|| parts.boxed()));
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
            Place::Table(store, _) => store.old_blobs(before).await,
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
            Place::Table(store, _) => store.remove_blobs(digests.to_vec(), before).await,
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
    Table(Box<Parts>),
}

/// A file that is being written to the table.
struct Parts {
    store: SqlStore,
    clock: Arc<dyn Clock>,
    /// The name of the file until it has its digest.
    name: String,
    /// The number of stored parts.
    stored: u64,
    /// Bytes that are not stored yet.
    rest: PartBuffer,
}

impl Parts {
    fn new(store: SqlStore, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, name: Uuid::now_v7().to_string(), stored: 0, rest: PartBuffer::default() }
    }

    async fn write(&mut self, mut piece: &[u8]) -> Result<(), StoreError> {
        while let Some(part) = self.rest.fill(&mut piece) {
            self.store_part(part).await?;
        }
        Ok(())
    }

    async fn store_part(&mut self, part: Vec<u8>) -> Result<(), StoreError> {
        self.store.put_blob_part(self.name.clone(), self.stored, part, self.clock.now()).await?;
        self.stored += 1;
        Ok(())
    }

    async fn finish(mut self, digest: BlobDigest) -> Result<(), StoreError> {
        let rest = self.rest.take();
        if !rest.is_empty() || self.stored == 0 {
            self.store_part(rest).await?;
        }
        self.store.name_blob(self.name, self.stored, digest, self.clock.now()).await
    }
}

/// A part of a file that was there a moment ago.
async fn part_of(store: &SqlStore, digest: &BlobDigest, part: u64) -> Result<Vec<u8>, StoreError> {
    let bytes = store.blob_part(digest, part).await?;
    bytes.ok_or_else(|| StoreError::NotFound(format!("part {part} of the file {}, which was removed", digest.as_str())))
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
            Destination::Table(parts) => parts.write(piece).await,
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
            Destination::Table(parts) => parts.finish(digest.clone()).await?,
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
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let why = if full { "the disk is full: " } else { "" };
    StoreError::Unavailable(format!("the files of messages cannot be stored or read: {why}{error}"))
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
