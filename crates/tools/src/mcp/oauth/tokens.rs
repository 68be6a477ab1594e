//! Requests to token endpoints.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belay_protocol::Secret;
use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use serde_json::Value;
use url::Url;
use url::form_urlencoded::{Serializer, byte_serialize};

use super::challenge::scopes;
use super::client::Client;
use super::fetch::{Answer, NoAnswer, send, text};
use crate::mcp::untrusted::line;

/// Longest token, in bytes: with it a request still fits the limits of servers.
const MAX_TOKEN: usize = 16 * 1024;

/// Longest words of an authorization server that are shown, in bytes.
const MAX_WORDS: usize = 300;

/// The tokens that an endpoint grants.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) access: Secret,
    pub(super) refresh: Option<Secret>,
    /// `None`: it does not say.
    pub(super) lifetime_s: Option<u64>,
    /// `None`: those that were asked for.
    pub(super) scopes: Option<Vec<String>>,
}

/// Why there is no token.
#[derive(Debug)]
pub(super) enum NotGranted {
    /// The server refuses the code or the refresh token, and does so again. With its words.
    Refused(String),
    /// The server refuses the client, which may not be for ever. With its words.
    NoClient(String),
    /// A repetition may succeed.
    Unavailable {
        /// A part of a sentence.
        why: String,
        /// Whether the server may have granted tokens that were lost on the way.
        may_be_lost: bool,
    },
}

/// Asks for tokens. `fields`: the form, without the client. `hidden`: the values that no text may show.
///
/// # Cancel safety
/// If the future is dropped, the server may have granted tokens, and have ended older ones.
pub(super) async fn ask(
    endpoint: &Url,
    client: &Client,
    fields: &[(&str, &str)],
    hidden: &[&str],
) -> Result<Granted, NotGranted> {
    let answer = post(endpoint, client, fields)
        .await
        .map_err(|none| NotGranted::Unavailable { why: none.why, may_be_lost: none.may_have_run })?;
    let object = answer.object();
    if answer.status.is_success() {
        let granted = object.as_ref().and_then(granted);
        let why = || "its authorization server answers without a usable token".to_owned();
        return granted.ok_or_else(|| NotGranted::Unavailable { why: why(), may_be_lost: true });
    }
    let object = object.unwrap_or_default();
    let words = told(&object, client, hidden).unwrap_or_else(|| format!("HTTP {}", answer.status));
    let is_final = answer.status.is_client_error() && answer.status != StatusCode::TOO_MANY_REQUESTS;
    // Anything else may come from something before the server, such as a firewall.
    Err(match text(&object, "error") {
        Some("invalid_grant") if is_final => NotGranted::Refused(words),
        Some("invalid_client" | "unauthorized_client") if is_final => NotGranted::NoClient(words),
        _ => NotGranted::Unavailable { why: format!("its authorization server answers {words}"), may_be_lost: false },
    })
}

/// Sends a form of a client.
pub(super) async fn post(endpoint: &Url, client: &Client, fields: &[(&str, &str)]) -> Result<Answer, NoAnswer> {
    let (form, header) = form(client, fields);
    let request = |http: reqwest::Client| {
        let request = http.post(endpoint.clone()).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let request = header.into_iter().fold(request, |request, header| request.header(AUTHORIZATION, header));
        request.body(form)
    };
    send(endpoint, request).await
}

/// The form with the client in it, and the header with the client if it has a secret.
fn form(client: &Client, fields: &[(&str, &str)]) -> (String, Option<String>) {
    let mut form = Serializer::new(String::new());
    form.extend_pairs(fields);
    let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let header = match &client.secret {
        Some(secret) if !client.in_form => {
            // Source: RFC 6749, section 2.3.1: both are encoded as in a form.
            let pair = format!("{}:{}", encoded(&client.id), encoded(secret.expose()));
            Some(format!("Basic {}", STANDARD.encode(pair)))
        }
        secret => {
            form.append_pair("client_id", &client.id);
            form.extend_pairs(secret.iter().map(|secret| ("client_secret", secret.expose())));
            None
        }
    };
    (form.finish(), header)
}

fn granted(object: &Value) -> Option<Granted> {
    let token = |key: &str| {
        let fits = |token: &&str| token.len() <= MAX_TOKEN && token.bytes().all(|byte| byte.is_ascii_graphic());
        text(object, key).filter(fits).map(|token| Secret::new(token.to_owned()))
    };
    if !text(object, "token_type").is_none_or(|kind| kind.eq_ignore_ascii_case("bearer")) {
        return None;
    }
    let lifetime = &object["expires_in"];
    let lifetime = lifetime.as_f64().or_else(|| lifetime.as_str()?.trim().parse().ok());
    Some(Granted {
        access: token("access_token")?,
        refresh: token("refresh_token"),
        lifetime_s: lifetime.filter(|seconds| *seconds >= 0.0).map(|seconds| seconds as u64),
        scopes: text(object, "scope").map(scopes),
    })
}

/// The error of an authorization server to a client, for people; `None`: there is none. See [`words`].
pub(super) fn told(object: &Value, client: &Client, hidden: &[&str]) -> Option<String> {
    let (_, header) = form(client, &[]);
    let header = header.as_deref().and_then(|header| header.strip_prefix("Basic "));
    let secret = client.secret.as_ref().map(Secret::expose);
    let hidden: Vec<_> = hidden.iter().copied().chain(secret).chain(header).collect();
    words(object, &hidden)
}

/// The error of an authorization server, for people; `None`: there is none. Its description is left out if it shows one of
/// the hidden values, also as a form has it.
pub(super) fn words(object: &Value, hidden: &[&str]) -> Option<String> {
    let encoded = hidden.iter().map(|hidden| byte_serialize(hidden.as_bytes()).collect::<String>());
    let hidden: Vec<_> = hidden.iter().map(|&hidden| hidden.to_owned()).chain(encoded).collect();
    let shows = |words: &str| hidden.iter().any(|hidden| !hidden.is_empty() && words.contains(hidden));
    let error = text(object, "error").filter(|error| !shows(error))?;
    let description = text(object, "error_description").filter(|words| !shows(words));
    let words = description.map_or_else(|| error.to_owned(), |words| format!("{error}, {words}"));
    Some(line(&words, MAX_WORDS))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn grants_are_read_as_servers_write_them() {
        for (object, lifetime) in [
            (json!({ "access_token": "a", "token_type": "bearer", "expires_in": 6 }), Some(6)),
            (json!({ "access_token": "a", "expires_in": "3600" }), Some(3600)),
            (json!({ "access_token": "a", "expires_in": 1.5, "scope": "x y" }), Some(1)),
            (json!({ "access_token": "a", "expires_in": null, "refresh_token": null }), None),
            (json!({ "access_token": "a", "expires_in": -1 }), None),
            (json!({ "access_token": "a", "expires_in": 1e300 }), Some(u64::MAX)),
        ] {
            let granted = granted(&object).unwrap();
            assert_eq!((granted.lifetime_s, granted.access.expose()), (lifetime, "a"), "{object}");
        }
        for object in [
            json!({}),
            json!({ "access_token": 7 }),
            json!({ "access_token": "a", "token_type": "mac" }),
            json!({ "access_token": "a b" }),
            json!({ "access_token": "a\r\nX: y" }),
            json!({ "access_token": "a".repeat(MAX_TOKEN + 1) }),
        ] {
            assert!(granted(&object).is_none(), "{object}");
        }
    }

    #[test]
    fn words_of_a_server_show_no_secret() {
        let object = json!({ "error": "invalid_grant", "error_description": "the code hush is used" });
        assert_eq!(words(&object, &[]).unwrap(), "invalid_grant, the code hush is used");
        assert_eq!(words(&object, &["hush"]).unwrap(), "invalid_grant");
        assert_eq!(words(&json!({ "error": "a hush" }), &["hush"]), None);
        let client = Client { id: "me".into(), secret: Some(Secret::new("hu+sh".into())), in_form: false };
        for shown in ["hu+sh", "hu%2Bsh", "bWU6aHUlMkJzaA=="] {
            let object = json!({ "error": "invalid_client", "error_description": format!("no such secret: {shown}") });
            assert_eq!(told(&object, &client, &[]).unwrap(), "invalid_client", "{shown}");
        }
    }
}
