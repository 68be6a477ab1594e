//! Authenticates and admits requests.

use std::net::IpAddr;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName};
use belay_protocol::{AccessDecision, ChannelAccess, Principal, SessionKey};
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

use crate::config::GatewaySecrets;
use crate::entry::Entry;
use crate::error::ApiError;
use crate::peer::Peer;

/// The token, as clients of Anthropic's API send it. `Authorization` counts if both are there.
pub(crate) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Whether a request shows a token, valid or not.
pub(crate) fn shows_token(headers: &HeaderMap) -> bool {
    headers.contains_key(AUTHORIZATION) || headers.contains_key(API_KEY)
}

/// Decides which principal a request comes from.
pub(crate) struct Auth {
    token: Option<blake3::Hash>,
    operator_token: Option<blake3::Hash>,
    /// The configured host name. A `Host` header may contain it or a loopback name.
    host: Option<String>,
    /// Other origins whose pages may ask with a token.
    origins: Vec<String>,
    /// Whether a secret that signs messages is configured.
    signed: bool,
}

impl Auth {
    /// Keeps digests of the tokens, not the tokens.
    pub(crate) fn new(secrets: &GatewaySecrets, listen: Option<&str>, origins: &[String]) -> Self {
        let digest =
            |secret: &Option<SecretString>| secret.as_ref().map(|text| blake3::hash(text.expose_secret().as_bytes()));
        Self {
            token: digest(&secrets.token),
            operator_token: digest(&secrets.operator_token),
            host: listen.map(|address| host_of(address).to_ascii_lowercase()),
            origins: origins.to_vec(),
            signed: secrets.webhook_secret.is_some(),
        }
    }

    /// Whether this entry currently admits anybody who can own work.
    fn is_open(&self, entry: Entry) -> bool {
        match entry {
            Entry::Token => self.token.is_some(),
            Entry::OperatorToken => self.operator_token.is_some(),
            Entry::Loopback => !self.needs_token(),
            Entry::ControlSocket | Entry::Link => true,
            Entry::Signer => self.signed,
            // The routine run works for the routine's creator.
            Entry::RoutineHook => false,
        }
    }

    /// Returns the principal of a request.
    ///
    /// # Errors
    /// 401 without a valid token if one is needed. 403 for another user on the socket, for a page of another site, and
    /// for an unknown host name.
    pub(crate) fn admit(&self, peer: Peer, headers: &HeaderMap) -> Result<Principal, ApiError> {
        let address = match peer {
            Peer::Socket { trusted: true } => return Ok(Entry::ControlSocket.principal()),
            Peer::Socket { trusted: false } => {
                return Err(ApiError::forbidden("the control socket serves its owner and root only"));
            }
            Peer::Tcp(address) => address,
        };
        let site = self.site(headers)?;
        if self.needs_token() {
            return self.by_token(headers);
        }
        if site == Site::Allowed {
            let message = "pages of gateway.cors_origins need a token, and none is configured: set BELAY_TOKEN";
            return Err(ApiError::unauthorized(message));
        }
        if !address.to_canonical().is_loopback() {
            return Err(ApiError::unauthorized("only this machine may ask while no token is configured"));
        }
        self.own_name(headers)?;
        Ok(Entry::Loopback.principal())
    }

    /// Returns the principal that opens a WebSocket; `None` if it has yet to show a token in its first message.
    ///
    /// # Errors
    /// As [`Auth::admit`], if no token is needed or the request has one.
    pub(crate) fn admit_socket(&self, peer: Peer, headers: &HeaderMap) -> Result<Option<Principal>, ApiError> {
        if matches!(peer, Peer::Tcp(_)) && self.needs_token() && !shows_token(headers) {
            self.site(headers)?;
            return Ok(None);
        }
        self.admit(peer, headers).map(Some)
    }

    /// Whether an admitted request has proven its sender, by a token or by the user of the socket. A loopback address
    /// is no proof.
    pub(crate) fn is_proof(&self, peer: Peer, headers: &HeaderMap) -> bool {
        match peer {
            Peer::Socket { .. } => true,
            Peer::Tcp(_) => self.needs_token() && shows_token(headers),
        }
    }

    /// Returns the principal of a token that a message contains. `None` if no token is needed: the peer is
    /// authenticated in another way.
    ///
    /// # Errors
    /// 401: the token is not known.
    pub(crate) fn by_shown(&self, peer: Peer, token: &str) -> Result<Option<Principal>, ApiError> {
        match peer {
            Peer::Tcp(_) if self.needs_token() => self.holder(token.as_bytes()).map(Some),
            Peer::Tcp(_) | Peer::Socket { .. } => Ok(None),
        }
    }

    /// Returns the entry of this token.
    ///
    /// # Errors
    /// 401: the token is not known.
    pub(crate) fn entry_of(&self, token: &[u8]) -> Result<Entry, ApiError> {
        self.entry_of_digest(blake3::hash(token))
    }

    /// Refuses the pages of other sites, also of those that may ask with a token.
    ///
    /// # Errors
    /// 403.
    pub(crate) fn own_origin(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        match self.site(headers)? {
            Site::Own => Ok(()),
            Site::Allowed => Err(ApiError::forbidden("the request comes from a page of another site")),
        }
    }

    /// A digest of the configured tokens: it changes when one of them does.
    pub(crate) fn tokens_digest(&self) -> String {
        let mut hasher = blake3::Hasher::new_derive_key("Belay: the tokens behind a sign-in, 1");
        for token in [&self.token, &self.operator_token] {
            hasher.update(&[u8::from(token.is_some())]);
            hasher.update(token.as_ref().map_or(&[0; 32], |digest| digest.as_bytes()));
        }
        hasher.finalize().to_hex().to_string()
    }

    /// Whether requests over TCP need a token.
    pub(crate) fn needs_token(&self) -> bool {
        self.token.is_some() || self.operator_token.is_some()
    }

    fn by_token(&self, headers: &HeaderMap) -> Result<Principal, ApiError> {
        match (headers.get(AUTHORIZATION), headers.get(API_KEY)) {
            (Some(header), _) => {
                let presented = bearer(header.as_bytes());
                let wrong = || ApiError::unauthorized("the Authorization header is not \"Bearer <token>\"");
                self.holder(presented.ok_or_else(wrong)?)
            }
            (None, Some(key)) => self.holder(key.as_bytes().trim_ascii()),
            (None, None) => {
                let message = "a token is needed: send the header \"Authorization: Bearer <token>\"";
                Err(ApiError::unauthorized(message))
            }
        }
    }

    /// Returns the principal of this token.
    fn holder(&self, presented: &[u8]) -> Result<Principal, ApiError> {
        self.entry_of_digest(blake3::hash(presented)).map(Entry::principal)
    }

    fn entry_of_digest(&self, presented: blake3::Hash) -> Result<Entry, ApiError> {
        // Digests have equal length and are compared in constant time; both comparisons always run.
        let matches = |known: &Option<blake3::Hash>| {
            known.as_ref().is_some_and(|known| bool::from(known.as_bytes().ct_eq(presented.as_bytes())))
        };
        let (client, operator) = (matches(&self.token), matches(&self.operator_token));
        match (operator, client) {
            (true, _) => Ok(Entry::OperatorToken),
            (false, true) => Ok(Entry::Token),
            (false, false) => Err(ApiError::unauthorized("the token is not known")),
        }
    }

    /// The site that a request comes from. Programs send no `Origin`.
    ///
    /// # Errors
    /// 403 for a request that a browser sends for a page of another site that is not allowed.
    fn site(&self, headers: &HeaderMap) -> Result<Site, ApiError> {
        let Some(origin) = headers.get(ORIGIN) else { return Ok(Site::Own) };
        let origin = origin.to_str().unwrap_or_default();
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        match (origin.split_once("://"), host) {
            (Some((_, authority)), Some(host)) if authority.eq_ignore_ascii_case(host) => Ok(Site::Own),
            _ if self.origins.iter().any(|allowed| allowed == origin) => Ok(Site::Allowed),
            _ => Err(ApiError::forbidden("the request comes from a page of another site")),
        }
    }

    /// Refuses foreign host names: a page whose name was made to point at 127.0.0.1 (DNS rebinding) sends its own name.
    fn own_name(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let Some(host) = headers.get(HOST) else { return Ok(()) }; // every browser sends it
        let name = host.to_str().map(|host| host_of(host).to_ascii_lowercase()).unwrap_or_default();
        let loopback = name == "localhost"
            || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
        if loopback || self.host.as_ref() == Some(&name) {
            return Ok(());
        }
        Err(ApiError::forbidden("the Host header names neither this machine's loopback nor gateway.listen"))
    }
}

impl ChannelAccess for Auth {
    fn may_exist(&self, principal: &str) -> bool {
        Entry::ALL.into_iter().any(|entry| entry.id() == principal)
    }

    /// While no token is configured, a former holder of a token counts as a loopback client.
    fn standing_of(&self, principal: &str, _conversation: Option<&str>) -> AccessDecision {
        let was = Entry::ALL.into_iter().find(|entry| entry.id() == principal);
        let now = match was {
            Some(Entry::Token | Entry::OperatorToken | Entry::Link) if !self.needs_token() => Some(Entry::Loopback),
            was => was,
        };
        match now.filter(|entry| self.is_open(*entry)) {
            Some(entry) => AccessDecision::May(entry.authority()),
            None => {
                AccessDecision::NotAllowed(format!("the tokens and secrets of [gateway] admit nobody as {principal}"))
            }
        }
    }

    /// Always: replies over HTTP are read, not delivered.
    fn serves(&self, _conversation: &str) -> bool {
        true
    }

    /// None: programs name the session of each message.
    fn session_of(&self, _conversation: &str) -> Option<SessionKey> {
        None
    }
}

/// The site of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Site {
    /// Belay's own, or none: the request is a program's.
    Own,
    /// Another one that the settings allow. It needs a token: the address of its browser proves nothing about the page.
    Allowed,
}

/// `host:port` without its port; the brackets of an IPv6 address stay.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    }
}

/// The token of an `Authorization` header; `None` for another scheme.
pub(crate) fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use belay_protocol::Authority;

    use super::*;

    fn auth(token: Option<&str>, operator: Option<&str>) -> Auth {
        let secret = |text: Option<&str>| text.map(|text| SecretString::from(text.to_owned()));
        let secrets = GatewaySecrets { token: secret(token), operator_token: secret(operator), webhook_secret: None };
        Auth::new(&secrets, Some("belay.lan:8787"), &["https://chat.example".into()])
    }

    #[test]
    fn access_checks_follow_the_currently_configured_tokens() {
        let (token, operator) = (Some(Authority::Token), Some(Authority::Operator));
        let (t, o) = (Some("tee"), Some("oh"));
        for (configured, expected) in [
            ((None, None), [operator, operator, operator, operator]),
            ((t, None), [token, None, None, operator]),
            ((None, o), [None, operator, None, operator]),
            ((t, o), [token, operator, None, operator]),
        ] {
            let auth = auth(configured.0, configured.1);
            let is = ["token", "operator-token", "loopback", "control-socket"].map(|who| {
                match auth.standing_of(who, None) {
                    AccessDecision::May(authority) => Some(authority),
                    AccessDecision::NotAllowed(_) => None,
                }
            });
            assert_eq!(is, expected, "{configured:?}");
            assert!(matches!(auth.standing_of("webhook", None), AccessDecision::NotAllowed(_)));
            assert!(matches!(auth.standing_of("somebody", None), AccessDecision::NotAllowed(_)));
        }
        let secret = |text: &str| Some(SecretString::from(text.to_owned()));
        let signed = GatewaySecrets { token: None, operator_token: secret("oh"), webhook_secret: secret("sign") };
        assert_eq!(
            Auth::new(&signed, None, &[]).standing_of("webhook", None),
            AccessDecision::May(Authority::Conversation)
        );
    }

    #[test]
    #[allow(clippy::unwrap_used)]
    fn each_peer_is_who_the_tokens_and_the_address_say() {
        let (near, far) = (Peer::Tcp([127, 0, 0, 1].into()), Peer::Tcp([192, 0, 2, 7].into()));
        let mapped = Peer::Tcp("::ffff:127.0.0.1".parse().unwrap());
        let own = Peer::Socket { trusted: true };
        let (t, o) = (Some("tee"), Some("oh"));
        type Text = Option<&'static str>;
        type Row = (Text, Text, Peer, &'static [(&'static str, &'static str)], Result<&'static str, u16>);
        let rows: &[Row] = &[
            (None, None, near, &[], Ok("loopback")),
            (None, None, mapped, &[], Ok("loopback")),
            (None, None, near, &[("host", "localhost:8787")], Ok("loopback")),
            (None, None, near, &[("host", "LOCALHOST")], Ok("loopback")),
            (None, None, near, &[("host", "127.8.8.8:1")], Ok("loopback")),
            (None, None, near, &[("host", "[::1]:8787")], Ok("loopback")),
            (None, None, near, &[("host", "Belay.LAN:8787")], Ok("loopback")),
            (None, None, near, &[("host", "evil.example:8787")], Err(403)),
            (None, None, near, &[("host", "localhost.evil.example")], Err(403)),
            (None, None, near, &[("host", "")], Err(403)),
            (None, None, near, &[("authorization", "Bearer whatever")], Ok("loopback")),
            (None, None, far, &[], Err(401)),
            (None, None, near, &[("host", "localhost:1"), ("origin", "http://localhost:1")], Ok("loopback")),
            (None, None, near, &[("host", "localhost:1"), ("origin", "http://localhost:2")], Err(403)),
            (None, None, near, &[("host", "localhost:1"), ("origin", "null")], Err(403)),
            (None, None, near, &[("origin", "http://localhost")], Err(403)),
            (None, None, own, &[("origin", "http://evil.example"), ("host", "x")], Ok("control-socket")),
            (None, None, Peer::Socket { trusted: false }, &[], Err(403)),
            (t, None, near, &[], Err(401)),
            (t, None, far, &[("authorization", "Bearer tee")], Ok("token")),
            (t, None, near, &[("authorization", "bEARER  tee ")], Ok("token")),
            (t, None, near, &[("authorization", "Bearer te")], Err(401)),
            (t, None, near, &[("authorization", "Bearer ")], Err(401)),
            (t, None, near, &[("authorization", "Basic dGVl")], Err(401)),
            (t, None, near, &[("authorization", "tee")], Err(401)),
            (t, None, far, &[("x-api-key", "tee")], Ok("token")),
            (t, None, near, &[("x-api-key", "te")], Err(401)),
            (t, o, near, &[("x-api-key", "tee"), ("authorization", "Bearer oh")], Ok("operator-token")),
            (t, None, near, &[("x-api-key", "tee"), ("authorization", "Basic dGVl")], Err(401)),
            (t, None, near, &[("x-api-key", "tee"), ("origin", "http://evil.example")], Err(403)),
            (t, None, own, &[], Ok("control-socket")),
            (t, o, near, &[("authorization", "Bearer oh")], Ok("operator-token")),
            (t, o, near, &[("authorization", "Bearer tee")], Ok("token")),
            (None, o, near, &[], Err(401)),
            (None, o, near, &[("authorization", "Bearer oh"), ("host", "any.example")], Ok("operator-token")),
            (t, t, near, &[("authorization", "Bearer tee")], Ok("operator-token")),
            (t, None, far, &[("authorization", "Bearer tee"), ("origin", "http://evil.example")], Err(403)),
            (t, None, far, &[("authorization", "Bearer tee"), ("origin", "https://chat.example")], Ok("token")),
            (t, None, far, &[("authorization", "Bearer tee"), ("origin", "http://chat.example")], Err(403)),
            (t, None, far, &[("authorization", "Bearer tee"), ("origin", "https://chat.example:8")], Err(403)),
            (t, None, near, &[("origin", "https://chat.example")], Err(401)),
            (None, None, near, &[("host", "localhost:1"), ("origin", "https://chat.example")], Err(401)),
        ];
        for (token, operator, peer, headers, expected) in rows {
            let mut map = HeaderMap::new();
            for (name, value) in *headers {
                map.insert(*name, value.parse().unwrap());
            }
            let got = auth(*token, *operator).admit(*peer, &map);
            let got = got.map(|principal| principal.id.to_string()).map_err(|error| error.status.as_u16());
            assert_eq!(got, expected.map(str::to_owned), "{token:?} {operator:?} {peer:?} {headers:?}");
        }
    }
}
