//! Secrets: values that logs never show and that only the tool that needs them can read.

use std::fmt;

use async_trait::async_trait;
use zeroize::Zeroizing;

use crate::ids::SessionKey;
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// A secret in memory. It is wiped when it is dropped, and debug output omits it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// A secret with this text.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The secret itself, for the call that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Keeps the secrets that people have given, encrypted.
#[async_trait]
pub trait SecretVault: Send + Sync {
    /// Keeps a secret for a session under a name, and replaces an earlier one. Committed before it returns.
    async fn keep(&self, session: &SessionKey, name: &str, secret: &Secret, at: UnixMillis) -> Result<(), StoreError>;
    /// The secret with this name: that of the session, else the configured one for all sessions.
    async fn find(&self, session: &SessionKey, name: &str) -> Result<Option<Secret>, StoreError>;
    /// Deletes a secret. `false`: there was none.
    async fn forget(&self, session: &SessionKey, name: &str) -> Result<bool, StoreError>;
    /// Deletes all secrets of a session. Returns their number.
    async fn forget_all(&self, session: &SessionKey) -> Result<u32, StoreError>;
}
