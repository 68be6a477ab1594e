//! Accepted messages, read back: the port [`InputReader`].

use std::sync::Arc;

use async_trait::async_trait;

use crate::idempotency::IdempotencyKey;
use crate::ids::{ChannelId, RunId, SessionKey};
use crate::message::Message;
use crate::provenance::Provenance;
use crate::store_error::StoreError;
use crate::time::UnixMillis;
use crate::watch::{Accepted, RunWatch};

/// Reads messages that were accepted.
#[async_trait]
pub trait InputReader: Send + Sync {
    /// The run of the message with this key, if the store has it. For duplicates that meet a full lane.
    async fn find(&self, key: &IdempotencyKey) -> Result<Option<KnownInput>, StoreError>;

    /// The inputs of queued runs that have not begun, in no particular order. Unknown runs are left out.
    async fn queued_inputs(&self, runs: &[RunId]) -> Result<Vec<QueuedInput>, StoreError>;

    /// The messages of people in the last visible turn of a session's active thread; `None`: there is none that
    /// [`ThreadEdit::Undo`](super::ThreadEdit::Undo) could hide.
    async fn last_turn(&self, session: &SessionKey) -> Result<Option<LastTurn>, StoreError>;
}

/// The messages of people in the last turn of a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct LastTurn {
    /// The channel of the first of them.
    pub channel: ChannelId,
    /// The sender of the first of them.
    pub principal: String,
    /// Their texts and facts, oldest first; at least one.
    pub messages: Vec<Message>,
}

/// A message that was committed earlier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownInput {
    /// Its run.
    pub run_id: RunId,
    /// Its session.
    pub session: SessionKey,
    /// The time of its commit.
    pub accepted_at: UnixMillis,
    /// The digest that distinguishes a duplicate from a conflict, see [`Sent`](crate::sent::Sent).
    pub digest: String,
}

impl KnownInput {
    /// The acknowledgement of a redelivery. `watch`: the watch of the run, if the run is live.
    pub fn again(self, watch: Option<RunWatch>) -> Accepted {
        let Self { run_id, session, accepted_at, digest: _ } = self;
        Accepted { run_id, session, accepted_at, duplicate: true, frozen: None, watch }
    }
}

/// The input of a queued run.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedInput {
    /// The run.
    pub run_id: RunId,
    /// The text of its message.
    pub text: String,
    /// The platform's facts about the message.
    pub provenance: Option<Arc<Provenance>>,
    /// The history that the client has sent with the message.
    pub history: Vec<Message>,
}

impl QueuedInput {
    /// The user message.
    pub fn message(&self) -> Message {
        Message::sent(&self.text, self.provenance.clone())
    }
}

/// The digest of a message with nothing but a text: blake3 of the text, in hex.
pub fn input_digest(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}
