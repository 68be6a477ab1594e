//! The file with the tokens of one server.
//!
//! It is not encrypted: who can read the file can use the login. It is for its owner alone, and no part of a backup, since a
//! restored copy would use refresh tokens that were replaced, which ends the login at many servers.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use tokio::time::{Instant, sleep};

use super::kept::{Kept, VERSION};

/// Largest file, in bytes: two tokens, a client and some addresses.
const MAX_BYTES: u64 = 256 * 1024;

/// Longest wait for another process that renews the login.
const LOCK_LIMIT: Duration = Duration::from_secs(30);

/// Pause between two attempts to get the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// The file. A lock file beside it serialises its writers, in all processes.
#[derive(Clone, Debug)]
pub(super) struct LoginFile {
    path: PathBuf,
}

impl LoginFile {
    /// The file of the server with this name, which has no separator in it.
    pub(super) fn new(directory: &Path, server: &str) -> Self {
        Self { path: directory.join(format!("{server}.json")) }
    }

    /// Reads the login; `None`: there is none.
    ///
    /// # Errors
    /// The file cannot be used; the text names it and the next step.
    pub(super) async fn read(&self) -> Result<Option<Kept>, String> {
        self.blocking(Self::read_now).await
    }

    fn read_now(&self) -> Result<Option<Kept>, String> {
        let place = self.path.display();
        let again = "log in again to replace it";
        let mut text = Vec::new();
        match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("its login in {place} cannot be read: {error}")),
            Ok(file) => {
                let unreadable = |error: io::Error| format!("its login in {place} cannot be read: {error}");
                let mode = file.metadata().map_err(unreadable)?.mode() & 0o7777;
                if mode & 0o077 != 0 {
                    return Err(format!("its login in {place} can be read by others (mode {mode:04o}): {again}"));
                }
                file.take(MAX_BYTES).read_to_end(&mut text).map_err(unreadable)?;
            }
        }
        let value: serde_json::Value =
            serde_json::from_slice(&text).map_err(|_| format!("its login in {place} is no JSON: {again}"))?;
        match value["version"].as_u64() {
            // The error of the parser is not shown: it may quote a token.
            Some(VERSION) => match serde_json::from_value(value) {
                Ok(kept) => Ok(Some(kept)),
                Err(_) => Err(format!("its login in {place} is incomplete: {again}")),
            },
            version => {
                let version = version.map_or_else(|| "none".to_owned(), |version| version.to_string());
                Err(format!("its login in {place} has the format {version}, and this Belay reads {VERSION}: {again}"))
            }
        }
    }

    /// Replaces the login. It is on disk when this returns. The caller has the lock.
    ///
    /// # Cancel safety
    /// If the future is dropped, the login is replaced all the same.
    pub(super) async fn write(&self, kept: &Kept) -> Result<(), String> {
        let text = serde_json::to_vec(kept).map_err(|error| error.to_string())?;
        self.blocking(move |file| file.write_now(&text).map_err(|error| file.unwritten(&error))).await
    }

    fn write_now(&self, text: &[u8]) -> io::Result<()> {
        let (mut file, new) = self.create_new()?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        self.sync_directory()
    }

    /// The file that replaces the present one, still empty.
    fn create_new(&self) -> io::Result<(File, PathBuf)> {
        let new = self.path.with_extension("json.new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        Ok((file, new))
    }

    /// Checks that a login can be written. The caller has the lock.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub(super) async fn check_place(&self) -> Result<(), String> {
        let check = |file: &Self| file.create_new().and_then(|(_, new)| fs::remove_file(new));
        self.blocking(move |file| check(file).map_err(|error| file.unwritten(&error))).await
    }

    /// Deletes the login. The caller has the lock.
    pub(super) async fn remove(&self) -> Result<(), String> {
        let removed = |file: &Self| match fs::remove_file(&file.path) {
            Ok(()) => file.sync_directory(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        self.blocking(move |file| removed(file).map_err(|error| file.unwritten(&error))).await
    }

    /// The rename, or the removal, is durable after its directory is synchronised.
    fn sync_directory(&self) -> io::Result<()> {
        File::open(self.directory())?.sync_all()
    }

    /// Gets the lock, which is held while the returned file is open. Makes the directory if it is missing.
    ///
    /// # Errors
    /// A sentence: it cannot be locked, or another process holds it for too long.
    pub(super) async fn lock(&self) -> Result<File, String> {
        let file = self.blocking(|file| file.lock_file().map_err(|error| file.unwritten(&error))).await?;
        let end = Instant::now() + LOCK_LIMIT;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < end => sleep(LOCK_PAUSE).await,
                Err(rustix::io::Errno::WOULDBLOCK) => return Err("another process is renewing its login".into()),
                Err(error) => return Err(self.unwritten(&error.into())),
            }
        }
    }

    fn lock_file(&self) -> io::Result<File> {
        let directory = self.directory();
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let path = self.path.with_extension("lock");
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
    }

    fn directory(&self) -> &Path {
        self.path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    fn unwritten(&self, error: &io::Error) -> String {
        format!("its login in {} cannot be written: {error}", self.path.display())
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let file = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&file)).await;
        done.unwrap_or_else(|error| Err(error.to_string()))
    }
}
