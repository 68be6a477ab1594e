//! Stores outputs that are too long for a model. Each one is a complete file in the data directory, and is read in
//! parts.
//!
//! **Does not know** the session of an output, only its run. The tool that reads outputs asks the store for the session
//! of that run.

mod name;
mod read_output;
#[cfg(test)]
mod tests;
mod writing;

use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use belay_protocol::{CallId, Kept, OutputKeeper, RunId, UnixMillis};

pub(crate) use self::name::OutputName;
pub(crate) use self::read_output::ReadOutput;
pub(crate) use self::writing::Writing;
use crate::config::OutputsConfig;
use crate::error::ToolsError;

/// Stores outputs in `<root>/<run>/<n>-<call>.txt`, readable by the daemon's user only. A clone uses the same files.
#[derive(Clone, Debug)]
pub struct KeptOutputs {
    store: Arc<OutputStore>,
}

#[derive(Debug)]
struct OutputStore {
    root: PathBuf,
    max_bytes: u64,
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

impl KeptOutputs {
    /// Opens the directory, creates it if it is missing, and counts its files. Called once, at the start.
    ///
    /// # Errors
    /// [`ToolsError::Outputs`]: the directory cannot be created or read.
    pub fn open(root: &Path, config: &OutputsConfig) -> Result<Self, ToolsError> {
        let failed = |source| ToolsError::Outputs { path: root.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(failed)?;
        let ledger = Mutex::new(Ledger::of(root).map_err(failed)?);
        let (max_bytes, max_total_bytes) = (config.max_bytes, config.max_total_bytes);
        let store = Arc::new(OutputStore { root: root.to_owned(), max_bytes, max_total_bytes, ledger });
        Ok(Self { store })
    }

    /// Removes the outputs of runs that were accepted before a date, and returns their number. Files that cannot be
    /// removed are logged.
    ///
    /// # Cancel safety
    /// If the future is dropped, some files may remain on disk. The next start counts them again.
    pub async fn forget_before(&self, date: UnixMillis) -> usize {
        let gone = self.store.lock().take_before(date);
        let removed = gone.len();
        self.store.remove_all(gone).await;
        removed
    }

    /// Starts to store an output while the tool still produces it.
    ///
    /// # Errors
    /// A text in plain words.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is stored.
    pub(crate) async fn begin(&self, run: RunId, call: &CallId) -> Result<Writing, String> {
        let name = self.store.lock().reserve(run, call);
        let writing = Writing::new(self.store.clone(), name);
        let path = self.store.path_of(writing.name());
        let file = tokio::task::spawn_blocking(move || create(&path)).await.map_err(io::Error::other);
        match file.and_then(|file| file) {
            Ok(file) => Ok(writing.into_file(file)),
            Err(error) => Err(storage_failure(&error)),
        }
    }
}

impl OutputStore {
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
        let removal = tokio::task::spawn_blocking(move || gone.iter().for_each(|name| this.remove(name)));
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

#[async_trait]
impl OutputKeeper for KeptOutputs {
    async fn keep(&self, run: RunId, call: &CallId, output: &str) -> Result<Kept, String> {
        let mut writing = self.begin(run, call).await?;
        writing.write(output.as_bytes()).await?;
        writing.finish().await
    }

    async fn forget(&self, runs: &[RunId]) {
        let gone = self.store.lock().take_of(runs);
        self.store.remove_all(gone).await;
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

/// The error text for the model. The cause is logged.
fn storage_failure(error: &io::Error) -> String {
    tracing::warn!(%error, "an output could not be kept");
    "the rest could not be kept, because the disk refused it".to_owned()
}
