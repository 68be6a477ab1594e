//! The logins at all servers, and what changes in them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{BegunLogin, EndedLogin, LoginRefusal, LoginReport, Secret, ServerLogins};
use belay_text::near::{did_you_mean, nearest_names};
use futures_util::future::join_all;
use tokio::sync::Notify;
use url::Url;

use super::file::LoginFile;
use super::login::Login;
use super::trouble::refused;
use crate::mcp::config::OauthConfig;

/// How long the end waits for renewals in progress. 2 s: the end of the daemon has 3 s for all of it.
const SETTLE_LIMIT: Duration = Duration::from_secs(2);

/// A login that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginChange {
    /// Name of the server.
    pub server: String,
    /// Why a person has to log in; `None`: nobody has to any more.
    pub needed: Option<String>,
    /// Whether the reason is new since the last login.
    pub is_new: bool,
}

/// A change: the reason, and whether it is new.
type Change = Option<(String, bool)>;

/// The changes that nobody has read yet: the newest one of each server.
#[derive(Debug, Default)]
pub(super) struct News {
    unread: Mutex<BTreeMap<String, Change>>,
    notify: Notify,
}

impl News {
    /// Tells that a person has to log in, with the reason and whether it is new; `None`: nobody has to any more.
    pub(super) fn tell(&self, server: &str, needed: Option<(&str, bool)>) {
        {
            let mut unread = self.unread();
            let before = unread.remove(server).flatten();
            // A new reason that nobody has read yet stays new.
            let change = needed.map(|(why, is_new)| {
                let was_new = before.is_some_and(|(before, was_new)| was_new && before == why);
                (why.to_owned(), is_new || was_new)
            });
            unread.insert(server.to_owned(), change);
        }
        self.notify.notify_one();
    }

    fn unread(&self) -> MutexGuard<'_, BTreeMap<String, Change>> {
        // Each change is one insertion or removal, so a panic cannot leave it inconsistent.
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The logins at all servers that have an address and no token in the settings.
#[derive(Debug, Default)]
pub(in crate::mcp) struct Logins {
    by_server: BTreeMap<String, Arc<Login>>,
    /// The other servers, each with the reason why it has no login.
    others: BTreeMap<String, &'static str>,
    news: Arc<News>,
}

impl Logins {
    /// Adds a server whose tokens are in this directory.
    pub(in crate::mcp) fn add(
        &mut self,
        server: &str,
        url: Url,
        settings: (OauthConfig, Option<Secret>),
        directory: &Path,
    ) -> Arc<Login> {
        let file = LoginFile::new(directory, server);
        let login = Arc::new(Login::new(server, url, settings, file, self.news.clone()));
        self.by_server.insert(server.to_owned(), login.clone());
        login
    }

    /// Names a server without a login, and the reason.
    pub(in crate::mcp) fn add_other(&mut self, server: &str, why: &'static str) {
        self.others.insert(server.to_owned(), why);
    }

    /// Whether no server has a login.
    pub(in crate::mcp) fn is_empty(&self) -> bool {
        self.by_server.is_empty()
    }

    /// Waits for the next change.
    ///
    /// # Cancel safety
    /// If the future is dropped, no change is lost.
    pub(in crate::mcp) async fn next(&self) -> LoginChange {
        loop {
            if let Some((server, change)) = self.news.unread().pop_first() {
                let (needed, is_new) = change.unzip();
                return LoginChange { server, needed, is_new: is_new.unwrap_or_default() };
            }
            self.news.notify.notified().await;
        }
    }

    /// Waits for renewals in progress.
    pub(in crate::mcp) async fn settle(&self) {
        join_all(self.by_server.values().map(|login| login.settle(SETTLE_LIMIT))).await;
    }

    fn find(&self, server: &str) -> Result<&Arc<Login>, LoginRefusal> {
        if let Some(login) = self.by_server.get(server) {
            return Ok(login);
        }
        if let Some(why) = self.others.get(server) {
            return Err(refused(format!("the MCP server {server} has no login: {why}")));
        }
        let known = self.by_server.keys().chain(self.others.keys());
        let hint = did_you_mean(&nearest_names(server, known, 1));
        Err(LoginRefusal::NoServer(format!("no MCP server {server} is enabled.{hint}")))
    }
}

#[async_trait]
impl ServerLogins for Logins {
    async fn begin(&self, server: &str, port: u16) -> Result<BegunLogin, LoginRefusal> {
        self.find(server)?.begin(port).await
    }

    async fn finish(&self, server: &str, answer: &str) -> Result<LoginReport, LoginRefusal> {
        self.find(server)?.finish(answer).await
    }

    async fn end(&self, server: &str) -> Result<EndedLogin, LoginRefusal> {
        self.find(server)?.end().await
    }

    async fn logins(&self) -> Vec<LoginReport> {
        join_all(self.by_server.values().map(|login| login.report())).await
    }
}
