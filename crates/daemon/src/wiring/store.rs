//! Opens the store.

use std::path::PathBuf;
use std::sync::Arc;

use belay_agent::StorePorts;
use belay_protocol::{SecretVault, UploadStore};
use belay_store::{
    Blobs, KeyError, OpenError, SealedVault, SqliteStore, StoreOptions, StoreStats, StoreUrl, VaultKey, parse_url,
};
use zeroize::Zeroizing;

use super::words;
use crate::environment::Environment;
use crate::exit::{Exit, Failure};
use crate::paths::Paths;
use crate::settings::{Settings, expand};

/// The name of the systemd credential with the key of the vault.
const KEY_CREDENTIAL: &str = "belay-secret-key";

/// The directory of the files of messages, beside the database.
const FILES: &str = "attachments";

/// The open store.
pub(crate) struct Store {
    kept: SqliteStore,
    vault: Arc<dyn SecretVault>,
    blobs: Blobs,
}

impl Store {
    /// The location of the store in the settings.
    pub(crate) fn place(settings: &Settings, paths: &Paths, env: &Environment) -> Result<StoreUrl, Failure> {
        match settings.store.url.as_deref().map(parse_url) {
            None => Ok(StoreUrl::Sqlite(paths.data.join("belay.db"))),
            Some(Ok(StoreUrl::Sqlite(path))) => Ok(StoreUrl::Sqlite(expand(&path, env))),
            Some(Ok(StoreUrl::Memory)) => Ok(StoreUrl::Memory),
            Some(Err(problem)) => Err(Failure::new(Exit::Refused, format!("store.url: {problem}"))),
        }
    }

    /// Opens the store.
    ///
    /// # Errors
    /// Another daemon uses it (75), another version wrote it (78), or the disk fails (69).
    pub(crate) async fn open(settings: &Settings, paths: &Paths, env: &Environment) -> Result<Self, Failure> {
        match Self::place(settings, paths, env)? {
            StoreUrl::Memory => Self::memory(),
            StoreUrl::Sqlite(path) => {
                let files = path.parent().map_or_else(|| PathBuf::from(FILES), |beside| beside.join(FILES));
                let store = open_file(path).await?;
                match vault_key(paths, env).await {
                    Ok(key) => {
                        let vault = Arc::new(SealedVault::new(Arc::new(store.clone()), key));
                        Ok(Self { kept: store, vault, blobs: Blobs::in_directory(files) })
                    }
                    Err(failure) => {
                        store.close().await;
                        Err(failure)
                    }
                }
            }
        }
    }

    /// Opens a store in memory.
    ///
    /// # Errors
    /// The system has no memory or no randomness.
    pub(crate) fn memory() -> Result<Self, Failure> {
        let store = SqliteStore::in_memory().map_err(|error| refuse_store(&error))?;
        let key = VaultKey::generate().map_err(|error| refuse_key(&error))?;
        let vault = Arc::new(SealedVault::new(Arc::new(store.clone()), key));
        Ok(Self { kept: store, vault, blobs: Blobs::in_memory() })
    }

    /// The rows of uploaded files.
    pub(crate) fn uploads(&self) -> Arc<dyn UploadStore> {
        Arc::new(self.kept.clone())
    }

    /// The ports that the agent uses.
    pub(crate) fn ports(&self) -> StorePorts {
        StorePorts::of(Arc::new(self.kept.clone()), self.vault.clone(), Arc::new(self.blobs.clone()))
    }

    /// A function that reads the figures of the store, also after it is closed.
    pub(crate) fn stats(&self) -> impl Fn() -> StoreStats + Send + Sync + 'static {
        let kept = self.kept.clone();
        move || kept.stats()
    }

    /// Writes pending data and closes the store.
    pub(crate) async fn close(self) {
        self.kept.close().await;
    }
}

/// The key that seals secrets: a credential of the service manager, or a file beside the store.
async fn vault_key(paths: &Paths, env: &Environment) -> Result<VaultKey, Failure> {
    let credential = env.directory("CREDENTIALS_DIRECTORY").map(|dir| dir.join(KEY_CREDENTIAL));
    let credential = credential.filter(|path| path.exists());
    let file = paths.data.join("secret.key");
    let read = tokio::task::spawn_blocking(move || match credential {
        // The service manager decides who may read it.
        Some(path) => std::fs::read(&path)
            .map(Zeroizing::new)
            .map_err(|source| KeyError::Io { path, source })
            .and_then(|bytes| VaultKey::from_bytes(&bytes)),
        None => VaultKey::from_file(&file),
    });
    match read.await {
        Ok(key) => key.map_err(|error| refuse_key(&error)),
        Err(broken) => Err(Failure::new(Exit::Internal, format!("the key of the vault could not be read: {broken}"))),
    }
}

fn refuse_key(error: &KeyError) -> Failure {
    let exit = match error {
        KeyError::Io { .. } | KeyError::NoRandomness => Exit::OutOfReach,
        _ => Exit::Refused,
    };
    Failure::new(exit, words(error))
}

async fn open_file(path: PathBuf) -> Result<SqliteStore, Failure> {
    let opened = tokio::task::spawn_blocking(move || SqliteStore::open(&path, StoreOptions::default())).await;
    match opened {
        Ok(Ok(store)) => Ok(store),
        Ok(Err(error)) => Err(refuse_store(&error)),
        Err(broken) => Err(Failure::new(Exit::Internal, format!("the store could not be opened: {broken}"))),
    }
}

/// The failure of a store that cannot be opened.
pub(crate) fn refuse_store(error: &OpenError) -> Failure {
    let exit = match error {
        OpenError::Locked { .. } => Exit::Busy,
        OpenError::Newer { .. } | OpenError::Unreleased => Exit::Refused,
        OpenError::Io { .. } | OpenError::Sqlite(_) => Exit::OutOfReach,
    };
    Failure::new(exit, words(error))
}
