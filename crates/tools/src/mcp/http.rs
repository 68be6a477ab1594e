//! Servers over streamable HTTP.

use std::time::Duration;

use belay_protocol::Secret;
use reqwest::redirect::Policy;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use url::Url;

use crate::mcp::config::is_loopback;
use crate::mcp::wire::MAX_LINE;

/// Longest time until a connection stands.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Most redirects of one request.
const MAX_REDIRECTS: usize = 3;

/// A server behind an address.
#[derive(Clone, Debug)]
pub(super) struct Remote {
    url: Url,
    token: Option<Secret>,
    client: reqwest::Client,
}

impl Remote {
    /// # Errors
    /// Plain words: no client can be made, for example because the machine has no root certificates.
    pub(super) fn new(url: &str, token: Option<Secret>) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|error| format!("its address cannot be used: {error}"))?;
        let builder = match url.scheme() == "http" && is_loopback(&url) {
            // No certificates are needed, and reading all of them takes long.
            true => reqwest::Client::builder().tls_certs_only([]),
            false => reqwest::Client::builder(),
        };
        let client = builder
            .connect_timeout(CONNECT_LIMIT)
            .redirect(Policy::custom(|attempt| {
                // Elsewhere the token, and what the model sends, would reach somebody who was not configured.
                let first = attempt.previous().first().map(Url::origin);
                if first == Some(attempt.url().origin()) && attempt.previous().len() <= MAX_REDIRECTS {
                    attempt.follow()
                } else {
                    attempt.stop()
                }
            }))
            .user_agent(concat!("belay/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { url, token, client })
    }

    /// A transport of its own, with a session of its own.
    pub(super) fn transport(&self) -> StreamableHttpClientTransport<reqwest::Client> {
        let mut config = StreamableHttpClientTransportConfig::with_uri(self.url.as_str())
            .max_sse_event_size(MAX_LINE)
            // A new session may offer other tools: it is begun by us, who look at them first.
            .reinit_on_expired_session(false);
        config.auth_header = self.token.as_ref().map(|token| token.expose().to_owned());
        StreamableHttpClientTransport::with_client(self.client.clone(), config)
    }
}
