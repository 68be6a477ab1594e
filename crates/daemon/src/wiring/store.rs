//! Opens the store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use belay_agent::StorePorts;
use belay_gateway::{LINK_KEY_BYTES, SignedLinks};
use belay_protocol::{Clock, EndReader, NoteVectors, SecretVault, SignInStore, SpendReader, UploadStore};
use belay_store::{
    Blobs, FileSizes, KeyError, OpenError, SealedVault, SqliteStore, StoreOptions, StoreStats, StoreUrl, VaultKey,
    parse_url,
};
use secrecy::{ExposeSecret, SecretBox};
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
    link_key: SecretBox<[u8; LINK_KEY_BYTES]>,
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

    /// The directory of the files of messages of this database.
    pub(crate) fn files(database: &Path) -> PathBuf {
        database.parent().map_or_else(|| PathBuf::from(FILES), |beside| beside.join(FILES))
    }

    /// Opens the store.
    ///
    /// # Errors
    /// Another daemon uses it (75), another version wrote it (78), or the disk fails (69).
    pub(crate) async fn open(settings: &Settings, paths: &Paths, env: &Environment) -> Result<Self, Failure> {
        match Self::place(settings, paths, env)? {
            StoreUrl::Memory => Self::memory(),
            StoreUrl::Sqlite(path) => {
                let files = Self::files(&path);
                let store = open_file(path).await?;
                match vault_key(paths, env).await {
                    Ok(key) => Ok(Self::of(store, key, Blobs::in_directory(files))),
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
        Ok(Self::of(store, key, Blobs::in_memory()))
    }

    fn of(kept: SqliteStore, key: VaultKey, blobs: Blobs) -> Self {
        let link_key = SecretBox::new(Box::new(*key.for_links()));
        let vault = Arc::new(SealedVault::new(Arc::new(kept.clone()), key));
        Self { kept, vault, blobs, link_key }
    }

    /// Makes and checks links to sent files. The links stay valid over restarts.
    pub(crate) fn links(&self, hours: u32, clock: Arc<dyn Clock>) -> SignedLinks {
        SignedLinks::new(SecretBox::new(Box::new(*self.link_key.expose_secret())), hours, clock)
    }

    /// The rows of uploaded files.
    pub(crate) fn uploads(&self) -> Arc<dyn UploadStore> {
        Arc::new(self.kept.clone())
    }

    /// What model calls have cost.
    pub(crate) fn spending(&self) -> Arc<dyn SpendReader> {
        Arc::new(self.kept.clone())
    }

    /// The sign-ins of browsers.
    pub(crate) fn sign_ins(&self) -> Arc<dyn SignInStore> {
        Arc::new(self.kept.clone())
    }

    /// The counts of ended runs.
    pub(crate) fn ends(&self) -> Arc<dyn EndReader> {
        Arc::new(self.kept.clone())
    }

    /// The vectors of notes.
    pub(crate) fn note_vectors(&self) -> Arc<dyn NoteVectors> {
        Arc::new(self.kept.clone())
    }

    /// The ports that the agent uses.
    pub(crate) fn ports(&self) -> StorePorts {
        StorePorts::of(Arc::new(self.kept.clone()), self.vault.clone(), Arc::new(self.blobs.clone()))
    }

    /// A function that reads the figures of the store and the sizes of its files, also after it is closed.
    pub(crate) fn stats(&self) -> impl Fn() -> (StoreStats, FileSizes) + Send + Sync + 'static {
        let kept = self.kept.clone();
        move || (kept.stats(), kept.file_sizes())
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
    let options = StoreOptions { on_commit: Some(super::metrics::committed), ..StoreOptions::default() };
    let opened = tokio::task::spawn_blocking(move || SqliteStore::open(&path, options)).await;
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
        OpenError::Newer { .. } | OpenError::Unreleased | OpenError::InterruptedRestore { .. } => Exit::Refused,
        OpenError::Io { .. } | OpenError::Sqlite(_) | OpenError::Snapshot(_) => Exit::OutOfReach,
    };
    Failure::new(exit, words(error))
}
