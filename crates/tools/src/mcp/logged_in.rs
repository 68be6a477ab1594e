//! The servers at which an operator logs in: where their tokens are, and their tools after a login.

use std::path::Path;
use std::sync::Arc;

use belay_protocol::ServerLogins;

use crate::mcp::host::{Mcp, SurveyMode};
use crate::mcp::late::Arrival;
use crate::mcp::oauth::{LoginChange, Logins};
use crate::mcp::pins::PinsError;

impl Mcp {
    /// Keeps the tokens of logins in this directory, which is made at the first login. Without it there are no logins. Call it
    /// before the servers are used.
    #[must_use]
    pub fn keeping_logins(mut self, directory: &Path) -> Self {
        let mut logins = Logins::default();
        for server in &mut self.servers {
            Arc::make_mut(server).set_login(&mut logins, directory);
        }
        self.logins = (!logins.is_empty()).then(|| Arc::new(logins));
        self
    }

    /// The logins at servers; `None`: no server can have one.
    pub fn logins(&self) -> Option<Arc<dyn ServerLogins>> {
        self.logins.clone().map(|logins| logins as Arc<dyn ServerLogins>)
    }

    /// Waits for the next login that is needed, or that was made.
    ///
    /// # Cancel safety
    /// If the future is dropped, no change is lost.
    pub async fn login_change(&self) -> LoginChange {
        match &self.logins {
            Some(logins) => logins.next().await,
            None => std::future::pending().await,
        }
    }

    /// Lists the tools of a server after a login; `None`: there is no such server.
    ///
    /// # Errors
    /// The pins cannot be read or changed. Then its tools are not offered.
    ///
    /// # Cancel safety
    /// If the future is dropped, its tools are missing until the next login or start.
    pub async fn listed_again(&self, name: &str) -> Option<Result<Arrival, PinsError>> {
        let server = self.servers.iter().find(|server| server.name() == name)?;
        let listing = self.asking.one(server).await;
        self.note(&[(server.clone(), listing.clone())]).await;
        let listings = self.listings().await;
        // The names of tools depend on those of all servers.
        let found = self.servers.iter().filter_map(|known| match known.name() == name {
            true => Some((known.clone(), listing.clone())),
            false => Some((known.clone(), Ok(listings.of(known)?.into_iter().map(Ok).collect()))),
        });
        let compared = self.compared(found.collect(), SurveyMode::ToUse, Some(server)).await;
        Some(compared.map(|survey| Arrival::of(self, server, survey)))
    }

    /// Waits for renewals of logins in progress, for 2 s at most. Call it at the end: an answer that is lost ends a login.
    pub async fn settle_logins(&self) {
        if let Some(logins) = &self.logins {
            logins.settle().await;
        }
    }
}
