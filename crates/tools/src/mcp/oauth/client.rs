//! The client that Belay is at an authorization server: one of the settings, or a registered one.

use belay_protocol::{LoginRefusal, Secret};
use reqwest::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};
use serde_json::json;
use url::Url;

use super::discovery::AuthorizationServer;
use super::fetch::{send, text};
use super::tokens::words;
use super::trouble::failed;
use crate::mcp::config::OauthConfig;

/// Longest id and longest secret of a client, in bytes.
const MAX_ID: usize = 4096;

/// A client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Client {
    pub(super) id: String,
    #[serde(with = "super::kept::optional_secret", default)]
    pub(super) secret: Option<Secret>,
    /// Whether the secret goes into the form instead of the header.
    pub(super) in_form: bool,
}

impl Client {
    /// The client for a login: that of the settings, or else a newly registered one. A client is registered for each login,
    /// so that one that the server has forgotten, or that may not have a scope, is never used again.
    ///
    /// # Errors
    /// The settings have none, and none can be registered.
    pub(super) async fn find(
        config: &OauthConfig,
        secret: Option<&Secret>,
        server: &AuthorizationServer,
        redirect_uri: &str,
    ) -> Result<Self, LoginRefusal> {
        let is_document = config.client_id.starts_with("https://");
        if !config.client_id.is_empty() && (!is_document || server.takes_documents || server.register.is_none()) {
            let in_form = !server.auth_methods.is_empty()
                && !server.auth_methods.iter().any(|method| method == "client_secret_basic");
            return Ok(Self { id: config.client_id.clone(), secret: secret.cloned(), in_form });
        }
        match &server.register {
            Some(register) => Self::register(register, redirect_uri).await,
            None => Err(failed(
                "its authorization server registers no clients: register one there by hand, with the redirect address \
                 http://127.0.0.1/callback, and set oauth.client_id of the server",
            )),
        }
    }

    /// Registers a client, without scopes: some servers take them for the most that it may ever ask for.
    ///
    /// Source: RFC 7591.
    async fn register(register: &Url, redirect_uri: &str) -> Result<Self, LoginRefusal> {
        let body = json!({
            "client_name": "Belay",
            "redirect_uris": [redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "application_type": "native",
            "token_endpoint_auth_method": "none",
        });
        let request = |client: reqwest::Client| {
            client.post(register.clone()).header(CONTENT_TYPE, "application/json").body(body.to_string())
        };
        let answer = send(register, request).await.map_err(|none| failed(none.why))?;
        let object = answer.object().unwrap_or_default();
        let id = text(&object, "client_id").filter(|id| id.len() <= MAX_ID);
        let secret = text(&object, "client_secret").filter(|secret| secret.len() <= MAX_ID);
        let method = text(&object, "token_endpoint_auth_method");
        // Some servers make a secret for each client, and refuse one that sends it although it has the method `none`.
        let secret = secret.filter(|_| method != Some("none"));
        match id {
            Some(id) if answer.status.is_success() => Ok(Self {
                id: id.to_owned(),
                in_form: method == Some("client_secret_post"),
                secret: secret.map(|secret| Secret::new(secret.to_owned())),
            }),
            _ => {
                let words = words(&object, &[]).unwrap_or_else(|| answer.status.to_string());
                Err(failed(format!("its authorization server registers no client: {words}")))
            }
        }
    }
}
