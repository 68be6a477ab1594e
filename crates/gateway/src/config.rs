//! Settings of the gateway: the section `[gateway]`.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

/// The section `[gateway]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayConfig {
    /// Address to listen on: `host:port`; port 0 takes a free one. Empty or `off`: no TCP listener, only the control
    /// socket. A non-loopback address without any token is refused.
    pub listen: String,
    /// Environment variable of the token that may send, watch and stop. Empty: none.
    pub token_env: String,
    /// File of that token. Empty: none.
    pub token_file: String,
    /// Environment variable of the operator token, which may do everything. Empty: none.
    pub operator_token_env: String,
    /// File of that token. Empty: none.
    pub operator_token_file: String,
    /// Environment variable of the secret that signs `POST /webhook`. Without a secret that route does not exist.
    pub webhook_secret_env: String,
    /// File of that secret. Empty: none.
    pub webhook_secret_file: String,
    /// The group, by name or number, whose members may use the control socket as operators. Empty: only the owner and
    /// root.
    pub control_group: String,
    /// Whether sessions and runs are offered as tools of the Model Context Protocol, at `/mcp`.
    pub mcp: bool,
    /// Hours that the session of an OpenAI request without a session name is kept after its last activity, at most
    /// 8760. 0: as other sessions.
    pub openai_session_hours: u32,
    /// Whether background requests of front ends, such as titles and tags, are answered with plain text, as by the model
    /// `belay:text`.
    pub openai_background_as_text: bool,
    /// Seconds that the run of an OpenAI request without a stream goes on after its client has disconnected, at most 3600;
    /// a retry joins it meanwhile. 0: to its end.
    pub openai_client_gone_s: u64,
    /// Whether browsers get the console at `/`.
    pub console: bool,
    /// Origins whose web pages may use the API with a bearer token: `scheme://host` or `scheme://host:port`, at most 32.
    pub cors_origins: Vec<String>,
    /// Longest request body in bytes, 1 KiB to 64 MiB.
    pub max_body_bytes: usize,
    /// Longest time a request may wait for a run, in milliseconds, 1 to 3 600 000.
    pub max_wait_ms: u64,
    /// Most event streams and WebSockets at a time; one more is answered 503. Absent: a quarter of `max_connections`.
    #[serde(skip)]
    pub max_streams: Option<usize>,
    /// Most unauthenticated WebSockets at a time, 1 to 65 536; one more is answered 503.
    #[serde(skip)]
    pub max_unauthenticated: usize,
    /// Most bytes that may wait for a WebSocket's reader, 64 KiB to 64 MiB; one more ends the connection.
    #[serde(skip)]
    pub max_buffered_bytes: usize,
    /// Most TCP connections at a time, 1 to 65 536. One more replaces the connection that has been idle for longest. If
    /// none is idle, it waits in the kernel's queue.
    pub max_connections: usize,
    /// Longest time that open requests may take after the gateway is told to stop, in seconds, at most 600.
    pub drain_s: u64,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8787".into(),
            token_env: "BELAY_TOKEN".into(),
            token_file: String::new(),
            operator_token_env: "BELAY_OPERATOR_TOKEN".into(),
            operator_token_file: String::new(),
            webhook_secret_env: "BELAY_WEBHOOK_SECRET".into(),
            webhook_secret_file: String::new(),
            control_group: String::new(),
            mcp: false,
            openai_session_hours: 24,
            openai_background_as_text: true,
            openai_client_gone_s: 15,
            console: true,
            cors_origins: Vec::new(),
            max_body_bytes: 1024 * 1024,
            max_wait_ms: 600_000,
            max_streams: None,
            max_unauthenticated: 256,
            max_buffered_bytes: 1536 * 1024,
            max_connections: 4096,
            drain_s: 15,
        }
    }
}

impl GatewayConfig {
    /// Lists all problems; each line begins with the full key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(address) = self.listen_address() {
            let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
            if port.is_none_or(|port| port.parse::<u16>().is_err()) {
                problems.push(format!(
                    "gateway.listen: {address:?} is not host:port, such as \"127.0.0.1:8787\", or \"off\""
                ));
            }
        }
        problems.extend(self.origin_problems());
        if self.mcp && !cfg!(feature = "mcp") {
            let absent = "gateway.mcp: this build of Belay does not speak the Model Context Protocol (feature mcp); remove the \
                          setting, or use a build with it: `belay --version --long` lists the parts";
            problems.push(absent.to_owned());
        }
        let mut range = |key: &str, value: u64, least: u64, most: u64| {
            if !(least..=most).contains(&value) {
                problems.push(format!("gateway.{key}: must be {least} to {most}, not {value}"));
            }
        };
        range("openai_session_hours", u64::from(self.openai_session_hours), 0, 8760);
        range("openai_client_gone_s", self.openai_client_gone_s, 0, 3600);
        range("max_body_bytes", self.max_body_bytes as u64, 1024, 64 * 1024 * 1024);
        range("max_wait_ms", self.max_wait_ms, 1, 3_600_000);
        range("max_connections", self.max_connections as u64, 1, 65_536);
        range("drain_s", self.drain_s, 0, 600);
        problems
    }

    fn origin_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.cors_origins.len() > ORIGINS_MAX {
            problems.push(format!("gateway.cors_origins: at most {ORIGINS_MAX}, not {}", self.cors_origins.len()));
        }
        for origin in self.cors_origins.iter().filter(|origin| !is_origin(origin)) {
            problems.push(format!(
                "gateway.cors_origins: {origin:?} is not an origin as browsers send it: http:// or https://, the host in \
                 lower case, and a port unless it is the default one, such as \"https://chat.example\""
            ));
        }
        problems
    }

    /// The address to listen on; `None`: no TCP listener.
    pub fn listen_address(&self) -> Option<&str> {
        let address = self.listen.trim();
        (!address.is_empty() && !address.eq_ignore_ascii_case("off")).then_some(address)
    }

    /// Most event streams and WebSockets at a time. A quarter of the connections: the other requests always have the
    /// larger part.
    pub(crate) fn most_streams(&self) -> usize {
        self.max_streams.unwrap_or_else(|| (self.max_connections / 4).max(1))
    }

    /// Longest time a request may wait for a run.
    pub(crate) fn max_wait(&self) -> Duration {
        Duration::from_millis(self.max_wait_ms)
    }
}

/// The secrets of the gateway, resolved by the daemon. An empty one counts as absent.
#[derive(Clone, Debug, Default)]
pub struct GatewaySecrets {
    /// May send, watch and stop.
    pub token: Option<SecretString>,
    /// May do everything.
    pub operator_token: Option<SecretString>,
    /// Signs `POST /webhook`.
    pub webhook_secret: Option<SecretString>,
}

impl GatewaySecrets {
    /// The same secrets without empty ones.
    pub(crate) fn without_empty(self) -> Self {
        let present = |secret: Option<SecretString>| secret.filter(|text| !text.expose_secret().is_empty());
        Self {
            token: present(self.token),
            operator_token: present(self.operator_token),
            webhook_secret: present(self.webhook_secret),
        }
    }

    /// Whether any token is configured.
    pub(crate) fn any_token(&self) -> bool {
        self.token.is_some() || self.operator_token.is_some()
    }
}

/// Most origins. 32: more than the sites of one operator.
const ORIGINS_MAX: usize = 32;

/// Whether a text is an origin in the form that browsers send. A text in another form would never match.
///
/// Source: the WHATWG Fetch and HTML standards, "serialization of an origin".
fn is_origin(text: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(text) else { return false };
    matches!(url.scheme(), "http" | "https") && url.origin().ascii_serialization() == text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_every_mistake_is_named() {
        assert_eq!(GatewayConfig::default().validate(), Vec::<String>::new());
        for listen in ["", "off", "OFF", "[::1]:0", "localhost:80"] {
            let config = GatewayConfig { listen: listen.into(), ..GatewayConfig::default() };
            assert_eq!(config.validate(), Vec::<String>::new(), "{listen}");
        }
        let origins = ["https://chat.example", "http://localhost:3000", "http://[::1]:8080"].map(String::from).into();
        let config = GatewayConfig { cors_origins: origins, ..GatewayConfig::default() };
        assert_eq!(config.validate(), Vec::<String>::new());
        for origin in
            ["*", "null", "", "chat.example", "https://chat.example/", "https://Chat.example", "https://a:443"]
        {
            let config = GatewayConfig { cors_origins: vec![origin.into()], ..GatewayConfig::default() };
            assert_eq!(config.validate().len(), 1, "{origin}");
        }
        let config = GatewayConfig { cors_origins: vec!["https://a".into(); 33], ..GatewayConfig::default() };
        assert_eq!(config.validate().len(), 1);
        let config = GatewayConfig {
            listen: "8787".into(),
            openai_session_hours: 8761,
            openai_client_gone_s: 3601,
            max_body_bytes: 1,
            max_wait_ms: 0,
            max_connections: 0,
            drain_s: 601,
            ..GatewayConfig::default()
        };
        let problems = config.validate();
        let keys: Vec<_> = problems.iter().filter_map(|line| line.split_once(':').map(|(key, _)| key)).collect();
        assert_eq!(
            keys,
            [
                "gateway.listen",
                "gateway.openai_session_hours",
                "gateway.openai_client_gone_s",
                "gateway.max_body_bytes",
                "gateway.max_wait_ms",
                "gateway.max_connections",
                "gateway.drain_s"
            ]
        );
    }
}
