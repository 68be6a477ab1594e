//! Accepted messages, read back: the port [`InputReader`].

use std::sync::Arc;

use async_trait::async_trait;

use crate::idempotency::IdempotencyKey;
use crate::ids::{RunId, SessionKey};
use crate::message::Message;
use crate::provenance::Provenance;
use crate::store_error::StoreError;
use crate::time::UnixMillis;
use crate::watch::{Accepted, RunWatch};

/// Reads messages that were accepted.
#[async_trait]
pub trait InputReader: Send + Sync {
    /// The run of that key, if it is known. For duplicates that meet a full lane.
    async fn find(&self, key: &IdempotencyKey) -> Result<Option<KnownInput>, StoreError>;

    /// What queued runs were accepted with, as long as they have not begun; in no order. A run that is unknown is left out.
    async fn queued_inputs(&self, runs: &[RunId]) -> Result<Vec<QueuedInput>, StoreError>;
}

/// A message that was committed before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownInput {
    /// Its run.
    pub run_id: RunId,
    /// Its session.
    pub session: SessionKey,
    /// When it was committed.
    pub accepted_at: UnixMillis,
    /// What tells a duplicate from a conflict, see [`Sent`](crate::sent::Sent).
    pub digest: String,
}

impl KnownInput {
    /// The acknowledgement of its second delivery. `watch` where its run is alive.
    pub fn again(self, watch: Option<RunWatch>) -> Accepted {
        let Self { run_id, session, accepted_at, digest: _ } = self;
        Accepted { run_id, session, accepted_at, duplicate: true, watch }
    }
}

/// What a queued run was accepted with.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedInput {
    /// The run.
    pub run_id: RunId,
    /// The text of its message.
    pub text: String,
    /// What is known of the message besides.
    pub provenance: Option<Arc<Provenance>>,
    /// The history that the message brought along.
    pub history: Vec<Message>,
}

impl QueuedInput {
    /// The message.
    pub fn message(&self) -> Message {
        Message::sent(&self.text, self.provenance.clone())
    }
}

/// The digest of a message that is a text and nothing else: blake3 of the text, in hex.
pub fn input_digest(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}
