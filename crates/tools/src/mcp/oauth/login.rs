//! The login at one server: the token for each request, and what is known of it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use belay_protocol::Secret;
use tokio::time::timeout;
use tracing::warn;
use url::Url;

use super::challenge::Challenge;
use super::file::LoginFile;
use super::kept::Kept;
use super::logins::News;
use super::needs::Need;
use super::pending::Pending;
use super::renewals::Renewals;
use super::trouble::LoginTrouble;
use crate::mcp::config::OauthConfig;

/// The login at one server. It reads its file at the first request.
pub(in crate::mcp) struct Login {
    pub(super) server: String,
    pub(super) url: Url,
    pub(super) config: OauthConfig,
    /// The secret of the client of the settings.
    pub(super) secret: Option<Secret>,
    pub(super) file: LoginFile,
    pub(super) news: Arc<News>,
    state: Mutex<State>,
    /// Held during a renewal and other changes of the tokens.
    pub(super) changing: tokio::sync::Mutex<()>,
    renewals: Mutex<Renewals>,
}

/// The known facts of a login.
#[derive(Default)]
pub(super) struct State {
    /// The login in the file; `None`: it was not read yet.
    pub(super) kept: Option<Option<Arc<Kept>>>,
    /// Whether the login in the file is older, because a write has failed.
    pub(super) is_unsaved: bool,
    /// Whether the answer to a renewal was lost.
    pub(super) is_lost: bool,
    /// Why a person has to log in.
    pub(super) needed: Option<Need>,
    /// The reasons that were told since the last login.
    pub(super) told: BTreeSet<String>,
    /// The last challenge of the server.
    pub(super) challenge: Option<Challenge>,
    /// The login that waits for a person.
    pub(super) pending: Option<Pending>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Login {
    pub(super) fn new(
        server: &str,
        url: Url,
        settings: (OauthConfig, Option<Secret>),
        file: LoginFile,
        news: Arc<News>,
    ) -> Self {
        let (config, secret) = settings;
        let (state, changing, renewals) = (Mutex::default(), tokio::sync::Mutex::default(), Mutex::default());
        Self { server: server.to_owned(), url, config, secret, file, news, state, changing, renewals }
    }

    /// The token for a request; `None`: nobody has logged in. It is renewed if it is about to expire.
    ///
    /// # Errors
    /// There is a login that cannot be used.
    ///
    /// # Cancel safety
    /// If the future is dropped, a renewal that has begun goes on.
    pub(in crate::mcp) async fn token(self: &Arc<Self>) -> Result<Option<Secret>, LoginTrouble> {
        let Some(kept) = self.kept().await? else { return Ok(None) };
        let now = now();
        if !kept.is_stale(now) || (kept.refresh.is_none() && !kept.is_expired(now)) {
            return Ok(Some(kept.access.clone()));
        }
        match self.renewed(kept.access.clone()).await {
            Ok(token) => Ok(Some(token)),
            // The token is still good for a moment.
            Err(_) if !kept.is_expired(now) => Ok(Some(kept.access.clone())),
            Err(trouble) => Err(trouble),
        }
    }

    /// The newest access token; `None`: there is none, or the login was not read yet.
    pub(in crate::mcp) fn newest(&self) -> Option<Secret> {
        self.state().kept.as_ref()?.as_ref().map(|kept| kept.access.clone())
    }

    /// The login, which is read at the first call.
    pub(super) async fn kept(&self) -> Result<Option<Arc<Kept>>, LoginTrouble> {
        if let Some(kept) = &self.state().kept {
            return Ok(kept.clone());
        }
        self.read().await
    }

    /// Reads the login anew.
    pub(super) async fn read(&self) -> Result<Option<Arc<Kept>>, LoginTrouble> {
        let read = self.file.read().await.map_err(LoginTrouble::Unavailable)?;
        // Tokens for another address are not sent to this one.
        let kept = read.filter(|kept| kept.server == self.url.as_str()).map(Arc::new);
        self.state().kept = Some(kept.clone());
        Ok(kept)
    }

    /// Waits for renewals in progress, for `limit` at most: their answers are lost otherwise.
    pub(super) async fn settle(&self, limit: Duration) {
        let mut tasks = std::mem::take(&mut self.lock_renewals().tasks);
        let settled = timeout(limit, async { while tasks.join_next().await.is_some() {} });
        if settled.await.is_err() {
            warn!(server = self.server, "the renewal of a login was given up; its answer may be lost");
        }
    }

    pub(super) fn lock_renewals(&self) -> MutexGuard<'_, Renewals> {
        self.renewals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment, so a panic cannot leave it inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Milliseconds since 1970.
pub(super) fn now() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX)
}
