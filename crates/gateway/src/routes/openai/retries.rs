//! Requests that a client sends again: by an `Idempotency-Key`, or as a retry that OpenAI's packages mark. Both join the
//! run of the first request, so that nothing is done or paid twice.
//!
//! Source: openai-python and openai-node, header `x-stainless-retry-count`: 0 for the first attempt.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName};
use belay_protocol::{IdempotencyKey, Principal};

use super::SESSION_HEADER;
use super::error::OpenAiError;
use super::request::{ChatRequest, Conversation};
use super::sessions::{CHAT_ID_HEADER, Named};
use crate::app::App;
use crate::checks::check_key;
use crate::first_attempts::{Retry, Taken, Waiting};
use crate::routes::routines::KEY_HEADER;

const COUNT_HEADER: HeaderName = HeaderName::from_static("x-stainless-retry-count");

/// A request that may be sent again, or that was sent before.
pub(super) struct Attempt {
    key: Arc<str>,
    sender: Arc<str>,
    digest: blake3::Hash,
    taken: Option<Taken>,
    /// Held while the client waits.
    pub(super) client: Waiting,
}

impl Attempt {
    /// `None`: a request that nothing recognises.
    ///
    /// # Errors
    /// 400: the key has a wrong length.
    pub(super) fn of(
        app: &App,
        principal: &Principal,
        headers: &HeaderMap,
        body: &[u8],
        streams: bool,
    ) -> Result<Option<Self>, OpenAiError> {
        let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let (sender, client): (Arc<str>, _) = (Arc::from(&*principal.id), Waiting::default());
        let digest = digest_of(headers, body);
        if let Some(key) = text(&KEY_HEADER) {
            let key = check_key(key).map_err(|e| OpenAiError::invalid("Idempotency-Key", "invalid_value", e))?;
            let taken = app.first_attempts.taken_with(&sender, key, digest, &client);
            return Ok(Some(Self { key: key.into(), sender, digest, taken, client }));
        }
        let Some(count) = text(&COUNT_HEADER).and_then(|count| count.trim().parse::<u32>().ok()) else {
            return Ok(None);
        };
        let retry = Retry { is_marked: count > 0, streams };
        let (key, taken) = app.first_attempts.key_of(&sender, digest, retry, &client);
        Ok(Some(Self { key, sender, digest, taken, client }))
    }

    /// The key of the message.
    pub(super) fn key(&self, app: &App) -> IdempotencyKey {
        let account = format!("openai:{}", self.sender).into();
        IdempotencyKey { channel: app.channel.clone(), account, message_id: self.key.clone() }
    }

    /// The conversation of the first attempt; `None`: this is the first.
    pub(super) fn again(&self, request: &ChatRequest) -> Option<Result<Conversation, OpenAiError>> {
        self.taken.clone().map(|taken| as_before(request, taken))
    }

    /// Keeps what the request is taken for. A secret is not kept.
    pub(super) fn remember(&self, app: &App, conversation: &Conversation) {
        let Conversation { session, is_named, takes_new, answers, text, text_only, .. } = conversation;
        if *answers && !text.starts_with('/') {
            return;
        }
        let order = answers.then(|| text.clone());
        let session = session.clone();
        let taken = Taken { session, is_named: *is_named, takes_new: *takes_new, text_only: *text_only, order };
        app.first_attempts.remember(&self.sender, &self.key, self.digest, taken);
    }
}

/// The digest of a request: its body, and the headers that name its session.
fn digest_of(headers: &HeaderMap, body: &[u8]) -> blake3::Hash {
    let mut digest = blake3::Hasher::new();
    for name in [&SESSION_HEADER, &CHAT_ID_HEADER] {
        digest.update(headers.get(name).map_or(b"", |value| value.as_bytes()));
        digest.update(b"\0"); // which no header has
    }
    digest.update(body).finalize()
}

/// Takes a request for what its first attempt was taken for.
fn as_before(request: &ChatRequest, taken: Taken) -> Result<Conversation, OpenAiError> {
    let Taken { session, is_named, takes_new, text_only, order } = taken;
    let conversation = request.conversation(request.lines()?, Some(Named::again(session, takes_new)))?;
    Ok(match order {
        Some(text) => Conversation { is_named, text_only, text, history: Vec::new(), ..conversation },
        None => Conversation { is_named, text_only, ..conversation },
    })
}
