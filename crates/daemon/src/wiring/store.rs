//! Which store keeps things.

use std::path::PathBuf;
use std::sync::Arc;

use belay_agent::StorePorts;
use belay_protocol::{EventLog, NoteStore, Outbox, RunReader, SpendLedger, ThreadStore};
use belay_store::{MemoryStore, OpenError, SqliteStore, StoreOptions, StoreUrl, parse_url};

use super::words;
use crate::environment::Environment;
use crate::exit::{Exit, Failure};
use crate::paths::Paths;
use crate::settings::{Settings, expand};

/// The open store.
pub(crate) enum Store {
    /// A file.
    Sqlite(SqliteStore),
    /// Nothing on disk.
    Memory(Arc<MemoryStore>),
}

impl Store {
    /// Where the settings want it.
    pub(crate) fn place(settings: &Settings, paths: &Paths, env: &Environment) -> Result<StoreUrl, Failure> {
        match settings.store.url.as_deref().map(parse_url) {
            None => Ok(StoreUrl::Sqlite(paths.data.join("belay.db"))),
            Some(Ok(StoreUrl::Sqlite(path))) => Ok(StoreUrl::Sqlite(expand(&path, env))),
            Some(Ok(StoreUrl::Memory)) => Ok(StoreUrl::Memory),
            Some(Err(problem)) => Err(Failure::new(Exit::Refused, format!("store.url: {problem}"))),
        }
    }

    /// Opens it.
    ///
    /// # Errors
    /// Another daemon has it (75), a later version wrote it (78), or the disk does not give it (69).
    pub(crate) async fn open(settings: &Settings, paths: &Paths, env: &Environment) -> Result<Self, Failure> {
        match Self::place(settings, paths, env)? {
            StoreUrl::Memory => Ok(Self::memory()),
            StoreUrl::Sqlite(path) => open_file(path).await.map(Self::Sqlite),
        }
    }

    /// One that forgets everything at the end.
    pub(crate) fn memory() -> Self {
        Self::Memory(Arc::new(MemoryStore::new()))
    }

    /// The ports that the agent uses.
    pub(crate) fn ports(&self) -> StorePorts {
        match self {
            Self::Sqlite(store) => ports_of(Arc::new(store.clone())),
            Self::Memory(store) => ports_of(store.clone()),
        }
    }

    /// The port that the tools use.
    pub(crate) fn notes(&self) -> Arc<dyn NoteStore> {
        match self {
            Self::Sqlite(store) => Arc::new(store.clone()),
            Self::Memory(store) => store.clone(),
        }
    }

    /// Writes what is left and closes.
    pub(crate) async fn close(self) {
        if let Self::Sqlite(store) = self {
            store.close().await;
        }
    }
}

fn ports_of<S>(store: Arc<S>) -> StorePorts
where
    S: ThreadStore + RunReader + EventLog + Outbox + SpendLedger + 'static,
{
    StorePorts {
        threads: store.clone(),
        runs: store.clone(),
        events: store.clone(),
        outbox: store.clone(),
        spend: store,
    }
}

async fn open_file(path: PathBuf) -> Result<SqliteStore, Failure> {
    let opened = tokio::task::spawn_blocking(move || SqliteStore::open(&path, StoreOptions::default())).await;
    match opened {
        Ok(Ok(store)) => Ok(store),
        Ok(Err(error)) => Err(refuse_store(&error)),
        Err(broken) => Err(Failure::new(Exit::Internal, format!("the store could not be opened: {broken}"))),
    }
}

/// The failure of a store that could not be opened.
pub(crate) fn refuse_store(error: &OpenError) -> Failure {
    let exit = match error {
        OpenError::Locked { .. } => Exit::Busy,
        OpenError::Newer { .. } => Exit::Refused,
        OpenError::Io { .. } | OpenError::Sqlite(_) => Exit::OutOfReach,
    };
    Failure::new(exit, words(error))
}
