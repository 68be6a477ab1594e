//! The browsers that are signed in.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use belay_protocol::{Clock, SignIn, SignInStore, StoreError, UnixMillis};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::links::Links;
use super::{digest, random_secret};
use crate::entry::Entry;

/// A sign-in that is not used for this long is not valid any more, in milliseconds: 7 days.
pub(crate) const IDLE_MS: i64 = 7 * DAY_MS;
/// The longest validity of a sign-in, in milliseconds: 30 days.
const VALID_MS: i64 = 30 * DAY_MS;
const DAY_MS: i64 = 24 * 3600 * 1000;
/// A use is stored when the one before is at least this old, in milliseconds: a minute. So a page costs no write for each
/// request.
const USE_PRECISION_MS: i64 = 60_000;
/// Longest name of a browser that is stored, in bytes.
const AGENT_MAX: usize = 200;

/// The sign-in of a request, attached by the guard.
#[derive(Clone, Debug)]
pub(crate) struct SignedIn {
    /// The sign-in.
    pub(crate) sign_in: SignIn,
    /// Its way in.
    pub(crate) entry: Entry,
    /// Cancelled when it is ended.
    pub(crate) ended: CancellationToken,
}

/// Makes, finds and ends sign-ins.
pub(crate) struct SignIns {
    store: Arc<dyn SignInStore>,
    clock: Arc<dyn Clock>,
    /// The digest of the tokens that are configured.
    tokens: String,
    /// What ends the open streams of each sign-in that has had a request.
    streams: Mutex<HashMap<String, CancellationToken>>,
    /// One-time links.
    pub(crate) links: Links,
}

impl SignIns {
    /// `tokens` is a digest of the configured tokens.
    pub(crate) fn new(store: Arc<dyn SignInStore>, clock: Arc<dyn Clock>, tokens: String) -> Self {
        Self { store, clock, tokens, streams: Mutex::default(), links: Links::default() }
    }

    /// Signs a browser in. Returns the secret of its cookie, and the sign-in.
    ///
    /// # Errors
    /// The store fails; the browser is not signed in.
    ///
    /// # Cancel safety
    /// If the future is dropped, there may be a sign-in whose secret nobody knows. It expires.
    pub(crate) async fn begin(&self, entry: Entry, agent: &str) -> Result<(String, SignIn), StoreError> {
        let (secret, now) = (random_secret(), self.clock.now());
        let sign_in = SignIn {
            id: Uuid::now_v7().simple().to_string(),
            digest: digest(&secret),
            tokens: self.tokens.clone(),
            principal: entry.id().to_owned(),
            agent: agent[..agent.floor_char_boundary(AGENT_MAX)].to_owned(),
            created_at: now,
            used_at: now,
            expires_at: expiry(now, now),
        };
        self.store.put_sign_in(sign_in.clone()).await?;
        Ok((secret, sign_in))
    }

    /// The sign-in with this secret, if it is valid now. Notes its use.
    ///
    /// # Errors
    /// The store fails.
    pub(crate) async fn find(&self, secret: &str) -> Result<Option<SignedIn>, StoreError> {
        let Some(mut sign_in) = self.store.sign_in(digest(secret)).await? else { return Ok(None) };
        let now = self.clock.now();
        let Some(entry) = self.entry_of(&sign_in, now) else { return Ok(None) };
        if now.0.saturating_sub(sign_in.used_at.0) >= USE_PRECISION_MS {
            (sign_in.used_at, sign_in.expires_at) = (now, expiry(sign_in.created_at, now));
            self.store.use_sign_in(sign_in.id.clone(), now, sign_in.expires_at).await?;
        }
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = streams.entry(sign_in.id.clone()).or_default().clone();
        Ok(Some(SignedIn { sign_in, entry, ended }))
    }

    /// The valid sign-ins, the newest first.
    ///
    /// # Errors
    /// The store fails.
    pub(crate) async fn all(&self) -> Result<Vec<SignIn>, StoreError> {
        let now = self.clock.now();
        let all = self.store.sign_ins().await?;
        Ok(all.into_iter().filter(|sign_in| self.entry_of(sign_in, now).is_some()).collect())
    }

    /// Ends sign-ins and their open streams. Returns how many there were.
    ///
    /// # Errors
    /// The store fails; nothing has ended.
    pub(crate) async fn end(&self, ids: Vec<String>) -> Result<usize, StoreError> {
        let ended = self.store.end_sign_ins(ids.clone()).await?;
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        ids.iter().filter_map(|id| streams.remove(id)).for_each(|stream| stream.cancel());
        Ok(ended)
    }

    /// The way in of a sign-in that is valid now. `None`: it has expired, or a token has changed since.
    fn entry_of(&self, sign_in: &SignIn, now: UnixMillis) -> Option<Entry> {
        let valid = sign_in.expires_at > now && sign_in.tokens == self.tokens;
        Entry::ALL.into_iter().find(|entry| entry.id() == sign_in.principal).filter(|_| valid)
    }
}

/// The end of the validity of a sign-in that is used now.
fn expiry(created: UnixMillis, now: UnixMillis) -> UnixMillis {
    UnixMillis(now.0.saturating_add(IDLE_MS).min(created.0.saturating_add(VALID_MS)))
}
