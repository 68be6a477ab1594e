//! The sign-ins of browsers at the console.
//!
//! A sign-in is a secret in a cookie of the browser. The store keeps its digest alone.

use async_trait::async_trait;

use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// The maximum number of sign-ins of one principal. One more replaces the one that was unused for longest.
pub const SIGN_INS_MAX: usize = 64;

/// The maximum number of valid one-time links. One more replaces the oldest.
pub const LINKS_MAX: usize = 16;

/// A browser that is signed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignIn {
    /// Its id, for lists. It is no secret.
    pub id: String,
    /// The digest of the secret in the cookie.
    pub digest: String,
    /// The digest of the tokens that were configured. A sign-in is not valid any more after one of them has changed.
    pub tokens: String,
    /// The id of the entry that allowed it, which is the principal of its requests.
    pub principal: String,
    /// The browser, as it names itself. Untrusted text.
    pub agent: String,
    /// When it was made.
    pub created_at: UnixMillis,
    /// When it was last used. It lags by at most a minute.
    pub used_at: UnixMillis,
    /// The end of its validity.
    pub expires_at: UnixMillis,
}

/// Stores sign-ins.
#[async_trait]
pub trait SignInStore: Send + Sync {
    /// Stores a sign-in, and deletes those that are expired at `created_at`, or that are too many of its principal.
    ///
    /// # Errors
    /// The store fails; nothing has changed.
    async fn put_sign_in(&self, sign_in: SignIn) -> Result<(), StoreError>;

    /// The sign-in with this digest. Expired ones too, until the next is stored.
    ///
    /// # Errors
    /// The store fails.
    async fn sign_in(&self, digest: String) -> Result<Option<SignIn>, StoreError>;

    /// Notes the use of a sign-in, and moves the end of its validity. Relaxed: a crash may lose it.
    ///
    /// # Errors
    /// The store fails; nothing has changed.
    async fn use_sign_in(&self, id: String, used_at: UnixMillis, expires_at: UnixMillis) -> Result<(), StoreError>;

    /// All sign-ins, the newest first. Expired ones too.
    ///
    /// # Errors
    /// The store fails.
    async fn sign_ins(&self) -> Result<Vec<SignIn>, StoreError>;

    /// Deletes the sign-ins with these ids. Returns how many there were.
    ///
    /// # Errors
    /// The store fails; nothing has changed.
    async fn end_sign_ins(&self, ids: Vec<String>) -> Result<usize, StoreError>;

    /// Stores a one-time link by the digest of its secret, and deletes those that have expired by now, and the oldest of
    /// more than [`LINKS_MAX`]. Committed.
    ///
    /// # Errors
    /// The store fails; nothing has changed.
    async fn put_link(&self, digest: String, now: UnixMillis, expires_at: UnixMillis) -> Result<(), StoreError>;

    /// Uses a one-time link: deletes it. `false`: it has expired by now, was used, or does not exist. Of several uses, also
    /// in several daemons, one succeeds. Committed.
    ///
    /// # Errors
    /// The store fails. The link may have been used all the same.
    async fn take_link(&self, digest: String, now: UnixMillis) -> Result<bool, StoreError>;

    /// Withdraws all one-time links. Committed.
    ///
    /// # Errors
    /// The store fails; nothing has changed.
    async fn drop_links(&self) -> Result<(), StoreError>;
}
