//! One-time links that sign a browser in. They are in the store, so that each is valid once, in any daemon that uses it.

use std::sync::Arc;

use belay_protocol::{Clock, SignInStore, StoreError, UnixMillis};

use super::{digest, random_secret};

/// How long a link is valid, in milliseconds: long enough to copy it to a browser on another machine. 5 minutes.
const VALID_MS: i64 = 300_000;

/// Makes and uses links.
pub(crate) struct Links {
    store: Arc<dyn SignInStore>,
    clock: Arc<dyn Clock>,
}

impl Links {
    pub(crate) fn new(store: Arc<dyn SignInStore>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }

    /// Makes a link, and returns its secret and the end of its validity.
    ///
    /// # Errors
    /// The store fails; there is no link.
    ///
    /// # Cancel safety
    /// If the future is dropped, there may be a link whose secret nobody knows. It expires.
    pub(crate) async fn issue(&self) -> Result<(String, UnixMillis), StoreError> {
        let (secret, now) = (random_secret(), self.clock.now());
        let expires_at = UnixMillis(now.0.saturating_add(VALID_MS));
        self.store.put_link(digest(&secret, false), now, expires_at).await?;
        Ok((secret, expires_at))
    }

    /// Withdraws all links.
    ///
    /// # Errors
    /// The store fails; the links are valid as before.
    pub(crate) async fn clear(&self) -> Result<(), StoreError> {
        self.store.drop_links().await
    }

    /// Uses a link. `false`: it has expired, was used, or does not exist.
    ///
    /// # Errors
    /// The store fails. The link may have been used all the same.
    ///
    /// # Cancel safety
    /// If the future is dropped, the link may be used up.
    pub(crate) async fn take(&self, secret: &str) -> Result<bool, StoreError> {
        self.store.take_link(digest(secret, false), self.clock.now()).await
    }
}
