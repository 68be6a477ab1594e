//! The browsers that are signed in.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belay_protocol::{Clock, Hints, SignIn, SignInStore, StoreError, Topic, UnixMillis};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::links::Links;
use super::{digest, random_secret};
use crate::entry::Entry;

/// A sign-in that is not used for this long is not valid any more, in milliseconds: 7 days.
const IDLE_MS: i64 = 7 * DAY_MS;
/// The longest validity of a sign-in, in milliseconds: 30 days.
pub(crate) const VALID_MS: i64 = 30 * DAY_MS;
const DAY_MS: i64 = 24 * 3600 * 1000;
/// A use is stored when the one before is at least this old, in milliseconds: a minute. So a page costs no write for each
/// request.
const USE_PRECISION_MS: i64 = 60_000;
/// How often a stream looks whether its sign-in is still valid. 15 minutes: a read for each stream costs nothing then. Beside
/// other nodes it also looks after each hint.
const LOOK: Duration = Duration::from_secs(900);
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
    /// Tells of sign-ins that other nodes have ended; `None`: there are no other nodes.
    hints: Option<Arc<dyn Hints>>,
    /// What ends the open streams of each sign-in that has had a request.
    streams: Mutex<HashMap<String, CancellationToken>>,
    /// One-time links.
    pub(crate) links: Links,
}

impl SignIns {
    /// `tokens` is a digest of the configured tokens.
    pub(crate) fn new(
        store: Arc<dyn SignInStore>,
        clock: Arc<dyn Clock>,
        tokens: String,
        hints: Option<Arc<dyn Hints>>,
    ) -> Self {
        let links = Links::new(store.clone(), clock.clone());
        Self { store, clock, tokens, hints, streams: Mutex::default(), links }
    }

    /// Signs a browser in. Returns the secret of its cookie, and the sign-in.
    ///
    /// # Errors
    /// The store fails; the browser is not signed in.
    ///
    /// # Cancel safety
    /// If the future is dropped, there may be a sign-in whose secret nobody knows. It expires.
    pub(crate) async fn begin(&self, entry: Entry, agent: &str, tls: bool) -> Result<(String, SignIn), StoreError> {
        let (secret, now) = (random_secret(), self.clock.now());
        let sign_in = SignIn {
            id: Uuid::now_v7().simple().to_string(),
            digest: digest(&secret, tls),
            tokens: self.tokens.clone(),
            principal: entry.id().to_owned(),
            agent: agent[..agent.floor_char_boundary(AGENT_MAX)].to_owned(),
            created_at: now,
            used_at: now,
            expires_at: expiry(now, now),
        };
        self.store.put_sign_in(sign_in.clone()).await?;
        self.forget_streams(&self.store.sign_ins().await?);
        Ok((secret, sign_in))
    }

    /// The sign-in with this secret of a cookie over TLS or not, if it is valid now. Notes its use.
    ///
    /// # Errors
    /// The store fails.
    ///
    /// # Cancel safety
    /// If the future is dropped, the use may not be noted.
    pub(crate) async fn find(&self, secret: &str, tls: bool) -> Result<Option<SignedIn>, StoreError> {
        let digest = digest(secret, tls);
        let Some(mut sign_in) = self.store.sign_in(digest.clone()).await? else { return Ok(None) };
        let now = self.clock.now();
        let Some(entry) = self.entry_of(&sign_in, now) else { return Ok(None) };
        if now.0.saturating_sub(sign_in.used_at.0) >= USE_PRECISION_MS {
            (sign_in.used_at, sign_in.expires_at) = (now, expiry(sign_in.created_at, now));
            // A store that cannot write must not keep an operator from a stop.
            if let Err(error) = self.store.use_sign_in(sign_in.id.clone(), now, sign_in.expires_at).await {
                tracing::warn!(%error, "the use of a sign-in cannot be noted");
            }
        }
        let (ended, is_new) = self.stream_of(&sign_in.id);
        // It may have been ended between the read and the entry, when there was nothing to cancel.
        if is_new && self.store.sign_in(digest).await?.is_none() {
            self.streams().remove(&sign_in.id);
            return Ok(None);
        }
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
    /// The store fails; only their streams have ended.
    ///
    /// # Cancel safety
    /// If the future is dropped, their streams end, and the sign-ins may have ended.
    pub(crate) async fn end(&self, ids: Vec<String>) -> Result<usize, StoreError> {
        let streams = EndStreams { of: self, ids: &ids };
        let ended = self.store.end_sign_ins(ids.clone()).await;
        drop(streams);
        ended
    }

    /// Waits until a sign-in is not valid any more: it was ended, has expired, or has given way to newer ones. The last is
    /// noticed within [`LOOK`], and the end by another node with the hint about it.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn until_over(&self, signed_in: &SignedIn) {
        let mut expires_at = signed_in.sign_in.expires_at;
        let mut changes = self.hints.as_ref().map(|hints| hints.changes(Topic::SignIns));
        let mut failing = false;
        loop {
            let left = u64::try_from(expires_at.0.saturating_sub(self.clock.now().0)).unwrap_or_default();
            let pause = Duration::from_millis(left).min(LOOK);
            tokio::select! {
                () = signed_in.ended.cancelled() => return,
                () = sleep(pause) => {}
                () = changed(&mut changes) => {}
            }
            let found = self.store.sign_in(signed_in.sign_in.digest.clone()).await;
            let failed_before = std::mem::replace(&mut failing, found.is_err());
            match found {
                Ok(Some(sign_in)) if self.entry_of(&sign_in, self.clock.now()).is_some() => {
                    expires_at = sign_in.expires_at
                }
                Ok(_) => return,
                Err(error) if failed_before => tracing::debug!(%error, "a sign-in still cannot be read"),
                Err(error) => tracing::warn!(%error, "a sign-in cannot be read"),
            }
        }
    }

    /// The token that ends the streams of a sign-in, and whether it is new.
    fn stream_of(&self, id: &str) -> (CancellationToken, bool) {
        let mut streams = self.streams();
        match streams.get(id) {
            Some(known) => (known.clone(), false),
            None => (streams.entry(id.to_owned()).or_default().clone(), true),
        }
    }

    /// Forgets the tokens of sign-ins that are not stored any more.
    fn forget_streams(&self, stored: &[SignIn]) {
        let stored: HashSet<&str> = stored.iter().map(|sign_in| sign_in.id.as_str()).collect();
        self.streams().retain(|id, stream| {
            stored.contains(id.as_str()) || {
                stream.cancel();
                false
            }
        });
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<String, CancellationToken>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The way in of a sign-in that is valid now. `None`: it has expired, or a token has changed since.
    fn entry_of(&self, sign_in: &SignIn, now: UnixMillis) -> Option<Entry> {
        let valid = sign_in.expires_at > now && sign_in.tokens == self.tokens;
        Entry::ALL.into_iter().find(|entry| entry.id() == sign_in.principal).filter(|_| valid)
    }
}

/// Waits for a hint; pending without other nodes, or after the end of the hints.
async fn changed(changes: &mut Option<watch::Receiver<u64>>) {
    if let Some(receiver) = changes {
        match receiver.changed().await {
            Ok(()) => return,
            Err(_closed) => *changes = None,
        }
    }
    std::future::pending().await
}

/// Ends the streams of sign-ins when it is dropped.
struct EndStreams<'a> {
    of: &'a SignIns,
    ids: &'a [String],
}

impl Drop for EndStreams<'_> {
    fn drop(&mut self) {
        let mut streams = self.of.streams();
        self.ids.iter().filter_map(|id| streams.remove(id)).for_each(|stream| stream.cancel());
    }
}

/// The end of the validity of a sign-in that is used now.
fn expiry(created: UnixMillis, now: UnixMillis) -> UnixMillis {
    UnixMillis(now.0.saturating_add(IDLE_MS).min(created.0.saturating_add(VALID_MS)))
}
