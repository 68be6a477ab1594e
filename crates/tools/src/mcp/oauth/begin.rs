//! Begins a login.

use belay_protocol::{BegunLogin, LoginRefusal};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use serde_json::json;

use super::challenge::Challenge;
use super::client::Client;
use super::discovery::{Found, discover};
use super::fetch::send;
use super::kept::Origin;
use super::login::Login;
use super::pending::{Pending, WAIT};
use super::trouble::{failed, refused};
use crate::mcp::config::is_loopback;
use crate::mcp::untrusted::line;

/// The scope without which some servers grant no refresh token.
const OFFLINE: &str = "offline_access";

impl Login {
    /// Begins a login.
    pub(super) async fn begin(&self, port: u16) -> Result<BegunLogin, LoginRefusal> {
        if self.url.scheme() == "http" && !is_loopback(&self.url) {
            return Err(refused(format!(
                "tools.mcp.{}.url would send the token unencrypted to another machine; use https://",
                self.server
            )));
        }
        let known = self.state().challenge.clone();
        let (challenge, is_open) = match known {
            Some(challenge) => (challenge, false),
            None => self.probe().await?.map_or_else(|| (Challenge::default(), true), |asked| (asked, false)),
        };
        let found = discover(&self.url, &challenge, is_open).await.map_err(failed)?;
        let Some(found) = found else {
            return Err(refused(format!("the MCP server {} lets everybody in: it needs no login", self.server)));
        };
        self.check_issuer(&found.authorization.issuer)?;
        let port = self.config.redirect_port.unwrap_or(port);
        let redirect_uri = format!("http://127.0.0.1:{port}/callback");
        let client = Client::find(&self.config, self.secret.as_ref(), &found.authorization, &redirect_uri).await?;
        let scopes = self.scopes(&found, &challenge);
        let consent = scopes.iter().any(|scope| scope == OFFLINE);
        let Found { resource, authorization, .. } = found;
        let origin = Origin {
            server: self.url.clone(),
            resource,
            issuer: authorization.issuer,
            token_endpoint: authorization.token,
            revocation_endpoint: authorization.revoke,
            client,
            scopes,
        };
        let pending = Pending::new(origin, redirect_uri.clone(), authorization.names_issuer);
        let url = pending.url(&authorization.authorize, consent).into();
        self.state().pending = Some(pending);
        Ok(BegunLogin { url, redirect_uri, expires_in_s: WAIT.as_secs() })
    }

    /// The scopes to ask for: those of the settings, of the challenge, or of the resource; with those that are granted already,
    /// if the server asks for more.
    fn scopes(&self, found: &Found, challenge: &Challenge) -> Vec<String> {
        let mut scopes = [&self.config.scopes, &challenge.scopes, &found.scopes]
            .into_iter()
            .find(|scopes| !scopes.is_empty())
            .cloned()
            .unwrap_or_default();
        let mut further = Vec::new();
        if challenge.wants_scope() {
            further.extend(challenge.scopes.clone());
            further.extend(self.state().kept.iter().flatten().flat_map(|kept| kept.scopes.clone()));
        }
        if found.authorization.offers_offline {
            further.push(OFFLINE.to_owned());
        }
        for scope in further {
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
        scopes
    }

    /// Checks that the authorization server is the one of the settings. A server names whichever it likes, and that one gets
    /// the client's secret.
    fn check_issuer(&self, found: &str) -> Result<(), LoginRefusal> {
        let wanted = &self.config.issuer;
        let is_free = wanted.is_empty() && self.secret.is_none();
        // As in the metadata, only a slash at the end may differ.
        if is_free || wanted.trim_end_matches('/') == found.trim_end_matches('/') {
            return Ok(());
        }
        Err(failed(format!(
            "its metadata names the authorization server {}, and oauth.issuer of the server is {}: nothing was sent to it",
            line(found, 200),
            if wanted.is_empty() { "not set" } else { wanted }
        )))
    }

    /// Asks the server without a token how to get one; `None`: it takes this request without one. Its other requests may
    /// need one all the same.
    async fn probe(&self) -> Result<Option<Challenge>, LoginRefusal> {
        let hello = json!({
            "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": { "name": "belay", "version": env!("CARGO_PKG_VERSION") },
            },
        });
        let request = |client: reqwest::Client| {
            let request = client.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
            request.header(ACCEPT, "text/event-stream").body(hello.to_string())
        };
        let answer = send(&self.url, request).await.map_err(|none| failed(none.why))?;
        if answer.status.is_success() {
            return Ok(None);
        }
        Ok(Some(answer.challenge.as_deref().map(Challenge::read).unwrap_or_default()))
    }
}
