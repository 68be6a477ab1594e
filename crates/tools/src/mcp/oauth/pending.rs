//! A login that waits for a person, and the answer of the browser.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use belay_protocol::{LoginRefusal, Secret};
use tokio::time::Instant;
use url::Url;
use url::form_urlencoded::parse;
use uuid::Uuid;

use super::kept::Origin;
use super::tokens::words;
use super::trouble::{failed, refused};

/// How long a login waits for the person.
pub(super) const WAIT: Duration = Duration::from_secs(600);

/// Longest answer of a browser, in bytes.
const MAX_ANSWER: usize = 16 * 1024;

/// A login that has begun.
pub(super) struct Pending {
    pub(super) origin: Origin,
    pub(super) redirect_uri: String,
    /// An answer after this time is refused.
    until: Instant,
    state: Secret,
    pub(super) verifier: Secret,
    names_issuer: bool,
}

impl Pending {
    pub(super) fn new(origin: Origin, redirect_uri: String, names_issuer: bool) -> Self {
        // 244 random bits, of the random numbers of the system.
        let random = || Secret::new(format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()));
        let (state, verifier, until) = (random(), random(), Instant::now() + WAIT);
        Self { origin, redirect_uri, until, state, verifier, names_issuer }
    }

    /// The address for the browser. `consent`: the person is asked even if they have agreed before, without which some servers
    /// grant no refresh token.
    ///
    /// Source: RFC 6749, section 4.1.1; RFC 7636, section 4.3; RFC 8707, section 2.
    pub(super) fn url(&self, authorize: &Url, consent: bool) -> Url {
        let mut url = authorize.clone();
        url.set_fragment(None);
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, self.verifier.expose().as_bytes()));
        let mut query = url.query_pairs_mut();
        let pairs: [(&str, &str); 7] = [
            ("response_type", "code"),
            ("client_id", &self.origin.client.id),
            ("redirect_uri", &self.redirect_uri),
            ("state", self.state.expose()),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("resource", &self.origin.resource),
        ];
        query.extend_pairs(pairs);
        if !self.origin.scopes.is_empty() {
            query.append_pair("scope", &self.origin.scopes.join(" "));
        }
        if consent {
            query.append_pair("prompt", "consent");
        }
        drop(query);
        url
    }

    /// Whether the answer is of this login, which may be over.
    pub(super) fn is_of(&self, answer: &Answer) -> bool {
        // Both are random; a comparison that takes longer for a better guess tells nothing in ten minutes.
        Instant::now() < self.until && answer.state == self.state
    }

    /// The code of the answer.
    ///
    /// # Errors
    /// The issuer is another one, or the person or the server has refused.
    pub(super) fn code(&self, answer: Answer) -> Result<Secret, LoginRefusal> {
        match answer.issuer {
            Some(issuer) if issuer != self.origin.issuer => {
                return Err(failed(
                    "another authorization server has answered than the one that was asked (iss); nothing was sent to it",
                ));
            }
            None if self.names_issuer => {
                return Err(failed(
                    "the answer does not say which authorization server it is from (iss), as that server promises",
                ));
            }
            _ => {}
        }
        if let Some(error) = answer.error {
            return Err(failed(format!("its authorization server says {error}")));
        }
        answer.code.ok_or_else(|| failed("its authorization server has sent no code"))
    }
}

/// The answer of a browser.
///
/// Source: RFC 6749, section 4.1.2; RFC 9207, section 2.
pub(super) struct Answer {
    state: Secret,
    code: Option<Secret>,
    issuer: Option<String>,
    error: Option<String>,
}

impl Answer {
    /// Reads the address to which the browser was sent back, or its query.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn read(answer: &str) -> Result<Self, LoginRefusal> {
        let no_answer = || {
            refused(
                "this is no answer of an authorization server: give the whole address to which the browser was sent",
            )
        };
        let answer = answer.trim();
        let query = answer.split_once('?').map_or(answer, |(_, query)| query);
        let query = query.split_once('#').map_or(query, |(query, _)| query);
        if answer.len() > MAX_ANSWER {
            return Err(no_answer());
        }
        let one = |key: &str| {
            let mut values = parse(query.as_bytes()).filter(|(found, _)| found == key).map(|(_, value)| value);
            match (values.next(), values.next()) {
                (Some(_), Some(_)) => Err(refused(format!("the answer has {key} twice"))),
                (value, _) => Ok(value.map(|value| value.into_owned()).filter(|value| !value.is_empty())),
            }
        };
        let state = one("state")?.ok_or_else(no_answer)?;
        let error = one("error")?.map(
            |error| serde_json::json!({ "error": error, "error_description": one("error_description").ok().flatten() }),
        );
        Ok(Self {
            state: Secret::new(state),
            code: one("code")?.map(Secret::new),
            issuer: one("iss")?,
            error: error.and_then(|error| words(&error, &[])),
        })
    }
}
