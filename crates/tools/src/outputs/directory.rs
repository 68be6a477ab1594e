//! Kept outputs as files: of one daemon, which nothing else writes.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use belay_protocol::{CallId, OutputName, OutputPart, OutputStore, OutputWriter, RunId, StoreError, UnixMillis};
use rustix::fs::{Mode, OFlags};
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;
use tokio::task::spawn_blocking;

/// Stores outputs in `<root>/<run>/<n>-<call>.txt`, readable by the daemon's user only.
#[derive(Debug)]
pub(super) struct OutputDirectory {
    files: Arc<Files>,
}

#[derive(Debug)]
struct Files {
    root: PathBuf,
    max_total_bytes: u64,
    ledger: Mutex<Ledger>,
}

/// The stored outputs and their sizes. Its lock is held briefly, and never during file IO.
#[derive(Debug, Default)]
struct Ledger {
    /// Sorted by age: later runs have greater names, and so do later outputs of one run.
    sizes: BTreeMap<OutputName, u64>,
    total: u64,
}

impl OutputDirectory {
    /// Opens the directory, creates it if it is missing, and counts its files. `max_total_bytes`: of all outputs together.
    ///
    /// # Errors
    /// The directory cannot be created or read.
    pub(super) fn open(root: &Path, max_total_bytes: u64) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        let ledger = Mutex::new(Ledger::of(root)?);
        Ok(Self { files: Arc::new(Files { root: root.to_owned(), max_total_bytes, ledger }) })
    }
}

#[async_trait]
impl OutputStore for OutputDirectory {
    async fn begin(&self, run: RunId, call: &CallId) -> Result<Box<dyn OutputWriter>, StoreError> {
        let name = self.files.lock().reserve(run, call);
        // From here on, a drop releases the name.
        let mut writer = FileWriter { files: self.files.clone(), name, file: None, written: 0, is_finished: false };
        let path = self.files.path_of(&writer.name);
        let file = spawn_blocking(move || create(&path)).await.map_err(io::Error::other);
        writer.file = Some(File::from_std(file.and_then(|file| file).map_err(failed)?));
        Ok(Box::new(writer))
    }

    async fn part(&self, name: &OutputName, from: u64, most: u64) -> Result<Option<OutputPart>, StoreError> {
        let path = self.files.path_of(name);
        let read = spawn_blocking(move || part_of(&path, from, most)).await.map_err(io::Error::other);
        match read.and_then(|read| read) {
            Ok(part) => Ok(Some(part)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    async fn forget(&self, runs: &[RunId]) {
        let gone = self.files.lock().take_of(runs);
        self.files.remove_all(gone).await;
    }

    async fn forget_before(&self, date: UnixMillis) -> Result<u64, StoreError> {
        let gone = self.files.lock().take_before(date);
        let removed = gone.len() as u64;
        self.files.remove_all(gone).await;
        Ok(removed)
    }
}

/// A file that is being written. If it is dropped before its end, it is removed.
struct FileWriter {
    files: Arc<Files>,
    name: OutputName,
    file: Option<File>,
    written: u64,
    is_finished: bool,
}

#[async_trait]
impl OutputWriter for FileWriter {
    async fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        if let Some(file) = &mut self.file {
            file.write_all(bytes).await.map_err(failed)?;
            self.written += bytes.len() as u64;
        }
        Ok(())
    }

    async fn finish(mut self: Box<Self>) -> Result<OutputName, StoreError> {
        if let Some(mut file) = self.file.take() {
            // No fsync: if a power failure destroys the file, `read_output` reports it as missing, and nothing else is
            // lost.
            file.flush().await.map_err(failed)?;
        }
        self.is_finished = true;
        self.files.settle(&self.name, self.written).await;
        Ok(self.name.clone())
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if !self.is_finished {
            self.files.lock().forget(&self.name);
            self.files.remove(&self.name);
        }
    }
}

impl Files {
    fn path_of(&self, name: &OutputName) -> PathBuf {
        self.root.join(name.run().to_string()).join(name.file())
    }

    /// Records the final size of an output, and removes the oldest ones until all fit the limit.
    async fn settle(self: &Arc<Self>, name: &OutputName, bytes: u64) {
        let oldest = self.lock().settle(name, bytes, self.max_total_bytes);
        self.remove_all(oldest).await;
    }

    /// Removes files that the ledger no longer contains.
    async fn remove_all(self: &Arc<Self>, gone: Vec<OutputName>) {
        if gone.is_empty() {
            return;
        }
        let this = self.clone();
        let removal = spawn_blocking(move || gone.iter().for_each(|name| this.remove(name)));
        if let Err(error) = removal.await {
            tracing::error!(%error, "removing old outputs panicked");
        }
    }

    /// Removes a file that the ledger no longer contains.
    fn remove(&self, name: &OutputName) {
        let path = self.path_of(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, %name, "an old output could not be removed");
            }
            _ => {}
        }
        if let Some(directory) = path.parent() {
            // Fails while the directory contains other outputs.
            let _ = std::fs::remove_dir(directory);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    /// Counts the outputs of earlier starts. Files with other names are ignored.
    fn of(root: &Path) -> io::Result<Self> {
        let mut ledger = Self::default();
        for directory in std::fs::read_dir(root)? {
            let directory = directory?;
            let Some(run) = directory.file_name().to_str().and_then(|name| name.parse::<RunId>().ok()) else {
                continue;
            };
            for file in std::fs::read_dir(directory.path())? {
                let file = file?;
                if let Some(name) = file.file_name().to_str().and_then(|file| OutputName::of_file(run, file)) {
                    let bytes = file.metadata()?.len();
                    ledger.sizes.insert(name, bytes);
                    ledger.total += bytes;
                }
            }
        }
        Ok(ledger)
    }

    /// Reserves a name that no other output has.
    fn reserve(&mut self, run: RunId, call: &CallId) -> OutputName {
        let newest = self.sizes.range(OutputName::all_of(run)).next_back().map_or(0, |(name, _)| name.number());
        let name = OutputName::new(run, newest.saturating_add(1), call);
        self.sizes.insert(name.clone(), 0);
        name
    }

    /// Records the size of an output; returns the oldest other outputs, which must be removed to keep the limit.
    fn settle(&mut self, name: &OutputName, bytes: u64, most: u64) -> Vec<OutputName> {
        if let Some(size) = self.sizes.get_mut(name) {
            self.total = self.total - *size + bytes;
            *size = bytes;
        }
        let mut removed = Vec::new();
        let mut total = self.total;
        for (other, size) in &self.sizes {
            if total <= most {
                break;
            }
            // An output of size 0 is still being written.
            if other != name && *size > 0 {
                total -= size;
                removed.push(other.clone());
            }
        }
        removed.iter().for_each(|name| self.forget(name));
        removed
    }

    /// Removes the outputs of these runs from the ledger and returns their names.
    fn take_of(&mut self, runs: &[RunId]) -> Vec<OutputName> {
        let of = |run: &RunId| self.sizes.range(OutputName::all_of(*run)).map(|(name, _)| name.clone());
        let gone: Vec<_> = runs.iter().flat_map(of).collect();
        gone.iter().for_each(|name| self.forget(name));
        gone
    }

    /// Removes the outputs of runs that were accepted before the date, and returns their names. Skips outputs that are
    /// still being written.
    fn take_before(&mut self, date: UnixMillis) -> Vec<OutputName> {
        let finished = self.sizes.iter().filter(|(_, size)| **size > 0).map(|(name, _)| name);
        let gone: Vec<_> = finished.filter(|name| name.made_before(date)).cloned().collect();
        gone.iter().for_each(|name| self.forget(name));
        gone
    }

    fn forget(&mut self, name: &OutputName) {
        self.total -= self.sizes.remove(name).unwrap_or(0);
    }
}

/// Creates the file of an output. Another task may remove the empty directory of the run at the same moment; then the
/// directory is created again.
fn create(path: &Path) -> io::Result<std::fs::File> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    loop {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => return done,
        }
    }
}

fn part_of(path: &Path, from: u64, most: u64) -> io::Result<OutputPart> {
    let mut file: std::fs::File =
        rustix::fs::open(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?.into();
    let size = file.metadata()?.len();
    let mut bytes = Vec::new();
    if from < size {
        file.seek(SeekFrom::Start(from))?;
        file.take(most).read_to_end(&mut bytes)?;
    }
    Ok(OutputPart { bytes, size })
}

fn failed(error: io::Error) -> StoreError {
    StoreError::Unavailable(format!("the files of outputs cannot be written or read: {error}"))
}
