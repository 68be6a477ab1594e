//! Servers over streamable HTTP.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::Secret;
use futures_util::StreamExt;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::redirect::Policy;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use sse_stream::SseStream;
use tokio::time::timeout;
use url::Url;

use crate::mcp::config::is_loopback;
use crate::mcp::http_client::SessionClient;
use crate::mcp::oauth::Login;
use crate::mcp::server_error::ServerError;
use crate::mcp::wire::MAX_LINE;

/// Longest time for opening a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Longest time for finding out whether a server speaks the old transport.
const PROBE_LIMIT: Duration = Duration::from_secs(3);

/// Most redirects of one request.
const MAX_REDIRECTS: usize = 3;

/// A client for an address: bounded in time, and followed to no other origin.
///
/// # Errors
/// As for [`Remote::new`].
pub(super) fn client_for(url: &Url) -> Result<reqwest::Client, String> {
    let builder = match url.scheme() == "http" && is_loopback(url) {
        // No certificates are needed, and loading all of them takes long.
        true => reqwest::Client::builder().tls_certs_only([]),
        false => reqwest::Client::builder(),
    };
    let redirects = Policy::custom(|attempt| {
        // Redirects to another origin are not followed: they would send the token and the model's data to a server that
        // nobody configured.
        let first = attempt.previous().first().map(Url::origin);
        if first == Some(attempt.url().origin()) && attempt.previous().len() <= MAX_REDIRECTS {
            attempt.follow()
        } else {
            attempt.stop()
        }
    });
    let builder = builder.connect_timeout(CONNECT_LIMIT).redirect(redirects);
    let agent = concat!("belay/", env!("CARGO_PKG_VERSION"));
    builder.user_agent(agent).build().map_err(|error| error.to_string())
}

/// A server that is reached by its URL.
#[derive(Clone, Debug)]
pub(super) struct Remote {
    url: Url,
    token: Option<Secret>,
    /// The login, if there is no token in the settings and the tokens of logins have a place.
    login: Option<Arc<Login>>,
    client: reqwest::Client,
}

impl Remote {
    /// # Errors
    /// A text in plain words: the HTTP client cannot be created, for example because the machine has no root
    /// certificates.
    pub(super) fn new(url: &str, token: Option<Secret>) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|error| format!("its address cannot be used: {error}"))?;
        let client = client_for(&url)?;
        Ok(Self { url, token, login: None, client })
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// Whether the settings have a token.
    pub(super) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    pub(super) fn set_login(&mut self, login: Arc<Login>) {
        self.login = Some(login);
    }

    /// A new transport with its own session.
    pub(super) fn transport(&self) -> StreamableHttpClientTransport<SessionClient> {
        let mut config = StreamableHttpClientTransportConfig::with_uri(self.url.as_str())
            .max_sse_event_size(MAX_LINE)
            // A new session may offer other tools. So a session is only reopened by code that checks the tools first.
            .reinit_on_expired_session(false);
        config.auth_header = self.token.as_ref().map(|token| token.expose().to_owned());
        let client = SessionClient { http: self.client.clone(), login: self.login.clone() };
        StreamableHttpClientTransport::with_client(client, config)
    }

    /// Names the cause of a failed start, if it is that the URL is one of the old transport.
    pub(super) async fn explain(&self, trouble: ServerError) -> ServerError {
        let is_refusal =
            matches!(trouble, ServerError::Unreachable(_) | ServerError::Error(_) | ServerError::NotMcp(_));
        let is_old = is_refusal && timeout(PROBE_LIMIT, self.is_old()).await.unwrap_or(false);
        if is_old { ServerError::OldTransport } else { trouble }
    }

    /// Whether a GET opens a stream that begins with the address for messages.
    ///
    /// Source: MCP 2025-11-25, "Transports", "Backwards Compatibility".
    async fn is_old(&self) -> bool {
        let request = self.client.get(self.url.clone()).header(ACCEPT, "text/event-stream");
        let token = self.token.iter().map(Secret::expose);
        let Ok(response) = token.fold(request, reqwest::RequestBuilder::bearer_auth).send().await else { return false };
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !response.status().is_success() || !kind.starts_with("text/event-stream") {
            return false;
        }
        // The time limit is short, so that the length needs none. The first event may be a comment or a ping.
        let mut events = SseStream::from_bytes_stream(response.bytes_stream()).take(3);
        while let Some(Ok(event)) = events.next().await {
            if event.event.as_deref() == Some("endpoint") {
                return true;
            }
        }
        false
    }
}
