//! The pins of one daemon: a file for its owner alone.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use belay_protocol::{PinStore, StoreError};
use rustix::fs::{FlockOperation, flock};

use super::MAX_BYTES;

/// Longest wait for another process that changes the pins. 5 s: a change takes milliseconds.
const LOCK_LIMIT: Duration = Duration::from_secs(5);

/// Pause between two attempts to get the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The file. A lock file beside it serialises the changes.
#[derive(Clone, Debug)]
pub(super) struct PinFile {
    path: PathBuf,
}

impl PinFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The text; `None`: there is no file. Reads at most one byte more than [`MAX_BYTES`].
    fn read(&self) -> io::Result<Option<String>> {
        let mut text = String::new();
        match File::open(&self.path) {
            Ok(file) => file.take(MAX_BYTES as u64 + 1).read_to_string(&mut text).map(|_| Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn replace(&self, before: Option<&str>, after: &str) -> io::Result<bool> {
        let _lock = self.lock()?;
        if self.read()?.as_deref() != before {
            return Ok(false);
        }
        self.write(after)?;
        Ok(true)
    }

    /// Gets the lock, which is held while the returned file is open.
    fn lock(&self) -> io::Result<File> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(self.beside("lock"))?;
        let end = Instant::now() + LOCK_LIMIT;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(LOCK_PAUSE),
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(io::Error::other("another process is changing it; try again"));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes a new file and renames it, so that a concurrent reader sees the old pins or the new ones.
    fn write(&self, pins: &str) -> io::Result<()> {
        let beside = self.beside("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(pins.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, &self.path)?;
        // The rename is durable after its directory is synced.
        File::open(self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")))?.sync_all()
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".");
        name.push(ending);
        name.into()
    }
}

#[async_trait]
impl PinStore for PinFile {
    async fn pins(&self) -> Result<Option<String>, StoreError> {
        let file = self.clone();
        blocking(move || file.read()).await
    }

    async fn replace_pins(&self, before: Option<&str>, after: &str) -> Result<bool, StoreError> {
        let (file, before, after) = (self.clone(), before.map(str::to_owned), after.to_owned());
        blocking(move || file.replace(before.as_deref(), &after)).await
    }

    fn location(&self) -> String {
        self.path.display().to_string()
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(io::Error::other);
    done.and_then(|done| done).map_err(|error| StoreError::Unavailable(error.to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use belay_testkit::pin_suite as suite;

    use super::*;

    fn file() -> (Arc<PinFile>, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        (Arc::new(PinFile::new(dir.path().join("pins"))), dir)
    }

    #[tokio::test]
    async fn pins_are_replaced_only_if_they_are_unchanged() {
        let (file, _dir) = file();
        suite::pins_are_replaced_only_if_they_are_unchanged(file).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn changes_of_many_at_once_are_all_kept() {
        let (file, dir) = file();
        let other = Arc::new(PinFile::new(dir.path().join("pins")));
        suite::changes_of_many_at_once_are_all_kept(vec![file, other]).await;
    }
}
