//! A login, with all that its renewal needs.

use belay_protocol::Secret;
use serde::{Deserialize, Serialize};
use url::Url;

use super::client::Client;
use super::tokens::Granted;

/// Version of the format.
pub(super) const VERSION: u64 = 1;

/// Longest lifetime that is counted, in seconds: ten years.
const MAX_LIFETIME_S: u64 = 315_360_000;

/// A login, and all that its renewal needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    version: u64,
    /// The address of the server in the settings. Tokens of another address are not used.
    pub(super) server: String,
    pub(super) resource: String,
    pub(super) issuer: String,
    pub(super) token_endpoint: String,
    pub(super) revocation_endpoint: Option<String>,
    pub(super) client: Client,
    #[serde(with = "secret")]
    pub(super) access: Secret,
    /// `None`: there is none, or the server takes it no more.
    #[serde(with = "optional_secret")]
    pub(super) refresh: Option<Secret>,
    /// When the access token expires, in milliseconds since 1970.
    pub(super) expires_at_ms: Option<i64>,
    /// How long before that the token is renewed, in milliseconds.
    margin_ms: i64,
    pub(super) scopes: Vec<String>,
}

/// The origin of a login.
pub(super) struct Origin {
    pub(super) server: Url,
    pub(super) resource: String,
    pub(super) issuer: String,
    pub(super) token_endpoint: Url,
    pub(super) revocation_endpoint: Option<Url>,
    pub(super) client: Client,
    /// The scopes that were asked for.
    pub(super) scopes: Vec<String>,
}

impl Kept {
    /// A new login. `now` in milliseconds since 1970.
    pub(super) fn new(origin: Origin, granted: Granted, now: i64) -> Self {
        let Origin { server, resource, issuer, token_endpoint, revocation_endpoint, client, scopes } = origin;
        let kept = Self {
            version: VERSION,
            server: server.into(),
            resource,
            issuer,
            token_endpoint: token_endpoint.into(),
            revocation_endpoint: revocation_endpoint.map(String::from),
            client,
            access: granted.access.clone(),
            refresh: None,
            expires_at_ms: None,
            margin_ms: 0,
            scopes,
        };
        kept.renewed(granted, now)
    }

    /// The same login with new tokens. A refresh token that was not replaced stays.
    pub(super) fn renewed(self, granted: Granted, now: i64) -> Self {
        // Some servers write 0 for a token that does not expire. As a lifetime it would cost a renewal for each request.
        let lifetime_s = granted.lifetime_s.filter(|seconds| *seconds > 0);
        let lifetime_ms = lifetime_s.map(|seconds| 1000 * seconds.min(MAX_LIFETIME_S) as i64);
        Self {
            access: granted.access,
            refresh: granted.refresh.or(self.refresh),
            expires_at_ms: lifetime_ms.map(|lifetime| now + lifetime),
            // 30 s, or a fifth of a short life.
            margin_ms: lifetime_ms.map_or(0, |lifetime| (lifetime / 5).min(30_000)),
            scopes: granted.scopes.unwrap_or(self.scopes),
            ..self
        }
    }

    /// The same login after its server has refused to renew it.
    pub(super) fn ended(self) -> Self {
        Self { refresh: None, ..self }
    }

    /// Whether the access token has expired.
    pub(super) fn is_expired(&self, now: i64) -> bool {
        self.expires_at_ms.is_some_and(|at| at <= now)
    }

    /// Whether the access token has expired, or is about to.
    pub(super) fn is_stale(&self, now: i64) -> bool {
        self.expires_at_ms.is_some_and(|at| at - self.margin_ms <= now)
    }
}

/// A secret in the file.
mod secret {
    use belay_protocol::Secret;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(secret.expose())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        String::deserialize(deserializer).map(Secret::new)
    }
}

/// A secret in the file, or `null`.
pub(super) mod optional_secret {
    use belay_protocol::Secret;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(
        secret: &Option<Secret>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        secret.as_ref().map(Secret::expose).serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Secret>, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.map(Secret::new))
    }
}
