//! Secrets: held without being shown, kept without being read by anybody but the tool that needs them.

use std::fmt;

use async_trait::async_trait;
use zeroize::Zeroizing;

use crate::ids::SessionKey;
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// A secret in memory: wiped when it is dropped, and never part of a debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes the text over.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The secret itself, for the one call that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Keeps secrets that people have given, sealed.
#[async_trait]
pub trait SecretVault: Send + Sync {
    /// Keeps a secret for a session under a name, replacing an earlier one. Committed before it returns.
    async fn keep(&self, session: &SessionKey, name: &str, secret: &Secret, at: UnixMillis) -> Result<(), StoreError>;
    /// The secret of that name; a session's own before one that is configured for all.
    async fn find(&self, session: &SessionKey, name: &str) -> Result<Option<Secret>, StoreError>;
    /// Forgets one. `false`: there was none.
    async fn forget(&self, session: &SessionKey, name: &str) -> Result<bool, StoreError>;
    /// Forgets all that a session was given; how many.
    async fn forget_all(&self, session: &SessionKey) -> Result<u32, StoreError>;
}
