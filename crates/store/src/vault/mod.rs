//! Secrets, sealed before they reach the store that keeps them.
//!
//! **For**: what people give when a tool needs a password or a token. AES-256-GCM over each secret; the key is in a file
//! of its own or comes from whoever started the process, never in the database. A copy of the database alone is of no use.
//!
//! **Does not know**: what a secret is for, or who may ask for it. It protects against whoever reads the database, not
//! against whoever can read the key file or the memory of the process too.

mod key;
mod record;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{Secret, SecretVault, SessionKey, StoreError, UnixMillis};

pub use self::key::{KEY_BYTES, KeyError, VaultKey};

/// Most secrets of one session.
pub(crate) const SECRETS_MAX: usize = 100;

/// Largest secret, in bytes: private keys and long tokens fit.
const SECRET_MAX_BYTES: usize = 16 * 1024;

/// Largest name of a secret, in bytes.
const SECRET_NAME_MAX_BYTES: usize = 256;

/// The error for one secret more than a session may have.
pub(crate) fn too_many() -> StoreError {
    StoreError::TooMuch(format!("a session keeps at most {SECRETS_MAX} secrets: forget one that is no longer needed"))
}

/// What a store offers to the vault: sealed records, which it cannot read.
#[async_trait]
pub trait SealedSecrets: Send + Sync {
    /// Keeps a record for a session under a name, replacing an earlier one. Committed.
    ///
    /// # Errors
    /// [`StoreError::TooMuch`] for one more than a session may have.
    async fn put_sealed(
        &self,
        session: &SessionKey,
        name: &str,
        sealed: Vec<u8>,
        at: UnixMillis,
    ) -> Result<(), StoreError>;
    /// The record of that name.
    async fn sealed(&self, session: &SessionKey, name: &str) -> Result<Option<Vec<u8>>, StoreError>;
    /// Removes a record. `false`: there was none. Committed.
    async fn remove_sealed(&self, session: &SessionKey, name: &str) -> Result<bool, StoreError>;
    /// Removes all records of a session; how many. Committed.
    async fn remove_all_sealed(&self, session: &SessionKey) -> Result<u32, StoreError>;
}

/// Secrets of sessions, sealed in a store, and secrets of the configuration, which every session has.
///
/// Share it in an `Arc`.
pub struct SealedVault {
    store: Arc<dyn SealedSecrets>,
    key: VaultKey,
    configured: HashMap<String, Secret>,
}

impl SealedVault {
    /// A vault over this store. A record that was sealed with another key is forgotten when it is looked for.
    pub fn new(store: Arc<dyn SealedSecrets>, key: VaultKey) -> Self {
        Self { store, key, configured: HashMap::new() }
    }

    /// The same, with secrets by name for all sessions. A session's own secret of the same name comes first.
    #[must_use]
    pub fn with_configured(self, configured: HashMap<String, Secret>) -> Self {
        Self { configured, ..self }
    }
}

#[async_trait]
impl SecretVault for SealedVault {
    /// # Errors
    /// [`StoreError::TooMuch`] for a secret or a name that is too long, or for one secret too many.
    async fn keep(&self, session: &SessionKey, name: &str, secret: &Secret, at: UnixMillis) -> Result<(), StoreError> {
        if name.len() > SECRET_NAME_MAX_BYTES {
            return Err(StoreError::TooMuch(format!("a secret's name has at most {SECRET_NAME_MAX_BYTES} bytes")));
        }
        if secret.expose().len() > SECRET_MAX_BYTES {
            return Err(StoreError::TooMuch(format!("a secret has at most {SECRET_MAX_BYTES} bytes")));
        }
        let sealed = self.key.seal(session, name, secret)?;
        self.store.put_sealed(session, name, sealed, at).await
    }

    /// A record that does not open, because it was sealed with another key or was changed, is forgotten with a warning, so
    /// that it is asked for again: nobody could ever read it. The configured secret of that name is not taken in its stead
    /// this time, since the session has said that it wants another.
    async fn find(&self, session: &SessionKey, name: &str) -> Result<Option<Secret>, StoreError> {
        let Some(sealed) = self.store.sealed(session, name).await? else {
            return Ok(self.configured.get(name).cloned());
        };
        match self.key.open(session, name, sealed) {
            Ok(secret) => Ok(Some(secret)),
            Err(error) => {
                tracing::warn!(%error, %session, "a kept secret is forgotten, and asked for again");
                self.store.remove_sealed(session, name).await?;
                Ok(None)
            }
        }
    }

    /// Forgets the session's own; one that is configured stays.
    async fn forget(&self, session: &SessionKey, name: &str) -> Result<bool, StoreError> {
        self.store.remove_sealed(session, name).await
    }

    /// Forgets the session's own; those that are configured stay.
    async fn forget_all(&self, session: &SessionKey) -> Result<u32, StoreError> {
        self.store.remove_all_sealed(session).await
    }
}

impl fmt::Debug for SealedVault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedVault").field("configured", &self.configured.len()).finish_non_exhaustive()
    }
}
