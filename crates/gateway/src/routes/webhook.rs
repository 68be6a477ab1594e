//! `POST /webhook`: messages of other programs, authenticated by a signature instead of a token.
//!
//! The signature covers the raw bytes and is checked before they are parsed. `sent_at` is part of the signed text, so
//! an old message cannot be replayed later. Within the five minutes, `delivery_id` makes a repetition recognisable.

use aws_lc_rs::hmac::{self, HMAC_SHA256, Key};
use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use belay_protocol::{Ack, Body, IdempotencyKey, Inbound, SessionKey, UnixMillis};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::messages::{AcceptedBody, AnsweredCommand};
use crate::app::Shared;
use crate::checks::{check_key, check_text};
use crate::entry::Entry;
use crate::error::ApiError;
use crate::extract::{json_content, parse_object, read_body};

/// The header with the signature.
pub(crate) const SIGNATURE_HEADER: HeaderName = HeaderName::from_static("x-hub-signature-256");

/// Greatest difference between `sent_at` and the daemon's clock, in either direction, in milliseconds. Five minutes:
/// enough for a queue, a few retries, and clocks that differ a little.
const WINDOW_MS: u64 = 5 * 60 * 1000;

/// Numbers above this are milliseconds, others seconds. As seconds it is the year 5138, as milliseconds 1973.
const SECONDS_MAX: i64 = 100_000_000_000;

/// A message of another program. Unknown fields are ignored.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "SignedMessage"))]
pub(crate) struct Delivery {
    session: String,
    text: String,
    delivery_id: String,
    sent_at: SentAt,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub(crate) enum SentAt {
    Number(i64),
    Text(String),
}

/// Accepts a signed message: 202 the first time, 200 with the same run after that.
pub(crate) async fn receive(State(app): State<Shared>, request: Request) -> Result<Response, ApiError> {
    let Some(secret) = &app.webhook_secret else { return Err(ApiError::not_found("no such route")) };
    let signature = signature(request.headers())?;
    json_content(request.headers())?;
    let bytes = read_body(request, app.config.max_body_bytes).await?;
    verify(secret.expose_secret(), &bytes, &signature)?;
    let delivery: Delivery = parse_object(&bytes)?;
    let inbound = delivery.check(app.clock.now(), app.channel.clone())?;
    match app.ask(inbound).await? {
        Ack::Accepted(accepted) => {
            let status = if accepted.duplicate { StatusCode::OK } else { StatusCode::ACCEPTED };
            Ok((status, Json(AcceptedBody::from(&accepted))).into_response())
        }
        Ack::Command(reply) => Ok(Json(AnsweredCommand::from(reply)).into_response()),
        other => Err(ApiError::unexpected(&other)),
    }
}

impl Delivery {
    fn check(self, now: UnixMillis, channel: belay_protocol::ChannelId) -> Result<Inbound, ApiError> {
        let session = SessionKey::parse(&self.session).map_err(|e| ApiError::invalid(format!("session: {e}")))?;
        check_text(&self.text).map_err(|e| ApiError::invalid(format!("text: {e}")))?;
        let id = check_key(&self.delivery_id).map_err(|e| ApiError::invalid(format!("delivery_id: {e}")))?;
        let sent_at = self.sent_at.to_millis()?;
        if now.0.abs_diff(sent_at.0) > WINDOW_MS {
            return Err(ApiError::stale(format!(
                "sent_at: {} is more than five minutes from our clock, {}",
                sent_at.to_rfc3339(),
                now.to_rfc3339()
            )));
        }
        let key = IdempotencyKey { channel: "webhook".into(), account: "webhook".into(), message_id: id.into() };
        Ok(Inbound {
            key: Some(key),
            ..Inbound::new(channel, session, Entry::Signer.principal(), Body::Text(self.text))
        })
    }
}

impl SentAt {
    fn to_millis(&self) -> Result<UnixMillis, ApiError> {
        match self {
            Self::Number(n) if n.unsigned_abs() > SECONDS_MAX.unsigned_abs() => Ok(UnixMillis(*n)),
            Self::Number(n) => Ok(UnixMillis(n * 1000)),
            Self::Text(text) => match text.parse::<jiff::Timestamp>() {
                Ok(instant) => Ok(UnixMillis(instant.as_millisecond())),
                Err(error) => Err(ApiError::invalid(format!("sent_at: not RFC 3339, nor a Unix time: {error}"))),
            },
        }
    }
}

/// The signature in the request: 32 bytes, written `sha256=<hex>`.
fn signature(headers: &HeaderMap) -> Result<[u8; 32], ApiError> {
    let header = headers
        .get(SIGNATURE_HEADER)
        .ok_or_else(|| ApiError::unauthorized("the header X-Hub-Signature-256 is missing"))?;
    header
        .as_bytes()
        .strip_prefix(b"sha256=")
        .and_then(from_hex)
        .ok_or_else(|| ApiError::unauthorized("X-Hub-Signature-256 is not \"sha256=\" and 64 hexadecimal digits"))
}

/// Decodes 32 bytes from hexadecimal digits.
pub(super) fn from_hex(text: &[u8]) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(bytes)
}

/// The signature of a body, as this route expects it: `sha256=<hex>`.
pub(crate) fn signature_of(secret: &SecretString, body: &[u8]) -> String {
    let mut text = String::from("sha256=");
    for byte in hmac::sign(&key(secret.expose_secret()), body).as_ref() {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

fn key(secret: &str) -> Key {
    Key::new(HMAC_SHA256, secret.as_bytes())
}

/// Checks the signature in constant time.
fn verify(secret: &str, bytes: &[u8], signature: &[u8; 32]) -> Result<(), ApiError> {
    hmac::verify(&key(secret), bytes, signature)
        .map_err(|_| ApiError::unauthorized("the signature does not match the body"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_known_signature_is_accepted_and_any_change_refused() {
        // GitHub: "Validating webhook deliveries", "Testing the webhook payload validation".
        let hex = b"757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let (secret, body) = ("It's a Secret to Everybody", b"Hello, World!");
        let good = from_hex(hex).unwrap();
        assert!(verify(secret, body, &good).is_ok());
        assert!(verify(secret, b"Hello, World?", &good).is_err());
        assert!(verify("another", body, &good).is_err());
        let signed = signature_of(&secret.into(), body);
        assert_eq!(signed.as_bytes().strip_prefix(b"sha256="), Some(&hex[..]));
        assert_eq!(from_hex(&hex[1..]), None);
        assert_eq!(from_hex(&[b'g'; 64]), None);
    }

    #[test]
    fn dates_are_read_as_text_seconds_or_milliseconds() {
        for (json, millis) in [
            ("\"2026-11-20T19:43:00.123Z\"", Some(1_795_203_780_123)),
            ("\"2026-11-20T20:43:00+01:00\"", Some(1_795_203_780_000)),
            ("1795203780", Some(1_795_203_780_000)),
            ("1795203780123", Some(1_795_203_780_123)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("\"yesterday\"", None),
            ("\"2026-11-20\"", None),
        ] {
            let sent: SentAt = serde_json::from_str(json).unwrap();
            assert_eq!(sent.to_millis().ok().map(|at| at.0), millis, "{json}");
        }
    }
}
