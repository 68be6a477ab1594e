//! Secrets, encrypted before they reach the store.
//!
//! **For**: the passwords and tokens that people give to tools. Each secret is encrypted with AES-256-GCM. The key is
//! in a file of its own or comes from the service manager, never in the database, so that a copy of the database alone
//! is useless.
//!
//! **Does not know**: what a secret is for, or who may ask for it. It protects against readers of the database, and not
//! against readers of the key file or of the process's memory.

mod key;
mod record;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{Secret, SecretVault, SessionKey, StoreError, UnixMillis};

pub use self::key::{KEY_BYTES, KeyError, VaultKey};

/// The maximum number of secrets of one session.
pub(crate) const SECRETS_MAX: usize = 100;

/// The maximum length of a secret, in bytes: enough for private keys and long tokens.
const SECRET_MAX_BYTES: usize = 16 * 1024;

/// The maximum length of a secret's name, in bytes.
const SECRET_NAME_MAX_BYTES: usize = 256;

/// The error for a secret beyond the limit of the session.
pub(crate) fn too_many() -> StoreError {
    StoreError::TooMuch(format!("a session keeps at most {SECRETS_MAX} secrets: forget one that is no longer needed"))
}

/// The port of the vault to a store: encrypted records, which the store cannot read.
#[async_trait]
pub trait SealedSecrets: Send + Sync {
    /// Stores a record for a session under a name, and replaces an earlier one. Committed.
    ///
    /// # Errors
    /// [`StoreError::TooMuch`] for a record beyond the limit of the session.
    async fn put_sealed(
        &self,
        session: &SessionKey,
        name: &str,
        sealed: Vec<u8>,
        at: UnixMillis,
    ) -> Result<(), StoreError>;
    /// The record with this name.
    async fn sealed(&self, session: &SessionKey, name: &str) -> Result<Option<Vec<u8>>, StoreError>;
    /// Removes a record. `false`: there was none. Committed.
    async fn remove_sealed(&self, session: &SessionKey, name: &str) -> Result<bool, StoreError>;
    /// Removes all records of a session. Returns their number. Committed.
    async fn remove_all_sealed(&self, session: &SessionKey) -> Result<u32, StoreError>;
}

/// The secrets of sessions, encrypted in a store, and the secrets of the configuration, which every session has.
///
/// Share it in an `Arc`.
pub struct SealedVault {
    store: Arc<dyn SealedSecrets>,
    key: VaultKey,
    configured: HashMap<String, Secret>,
}

impl SealedVault {
    /// A vault over this store. A record of another key counts as missing.
    pub fn new(store: Arc<dyn SealedSecrets>, key: VaultKey) -> Self {
        Self { store, key, configured: HashMap::new() }
    }

    /// The same, with configured secrets by name for all sessions. A session's own secret of the same name takes
    /// precedence.
    #[must_use]
    pub fn with_configured(self, configured: HashMap<String, Secret>) -> Self {
        Self { configured, ..self }
    }
}

#[async_trait]
impl SecretVault for SealedVault {
    /// # Errors
    /// [`StoreError::TooMuch`] for a secret or a name that is too long, or for a secret beyond the limit.
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

    /// A record that cannot be decrypted, because it has another key or was changed, counts as missing, with a warning:
    /// the person is asked again. The record stays until it is replaced, since the right key may come back. The
    /// configured secret of that name is not returned, since the session has chosen another one.
    async fn find(&self, session: &SessionKey, name: &str) -> Result<Option<Secret>, StoreError> {
        let Some(sealed) = self.store.sealed(session, name).await? else {
            return Ok(self.configured.get(name).cloned());
        };
        match self.key.open(session, name, sealed) {
            Ok(secret) => Ok(Some(secret)),
            Err(error) => {
                tracing::warn!(%error, %session, "a kept secret cannot be used, and is asked for again");
                Ok(None)
            }
        }
    }

    /// Deletes the session's own secret; a configured one stays.
    async fn forget(&self, session: &SessionKey, name: &str) -> Result<bool, StoreError> {
        self.store.remove_sealed(session, name).await
    }

    /// Deletes the session's own secrets; configured ones stay.
    async fn forget_all(&self, session: &SessionKey) -> Result<u32, StoreError> {
        self.store.remove_all_sealed(session).await
    }
}

impl fmt::Debug for SealedVault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedVault").field("configured", &self.configured.len()).finish_non_exhaustive()
    }
}
