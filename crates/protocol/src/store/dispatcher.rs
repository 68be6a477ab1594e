//! What the dispatcher stores and reads back at its start: the port [`DispatcherStore`].

use async_trait::async_trait;

use super::KnownInput;
use crate::idempotency::IdempotencyKey;
use crate::ids::{ChannelId, RunId, SessionKey};
use crate::store_error::StoreError;
use crate::time::UnixMillis;
use crate::work::Work;

/// Keeps what the dispatcher has to know after a restart: keys of commands and messages, and runs that have not ended.
#[async_trait]
pub trait DispatcherStore: Send + Sync {
    /// Notes that a command, or an answer to a question, was acted on; once for each key, as it was first. The newest
    /// [`ACTED_ON_KEPT`] are kept. Committed.
    async fn note_acted_on(&self, acted_on: &ActedOn, at: UnixMillis) -> Result<(), StoreError>;

    /// What was acted on, oldest first: for recognising a second delivery after a restart.
    async fn acted_on(&self) -> Result<Vec<ActedOn>, StoreError>;

    /// Those of the newest [`RECENT_INPUTS`] messages that have a key, oldest first: for recognising a command under a key
    /// that a message has used before a restart.
    async fn recent_inputs(&self) -> Result<Vec<(IdempotencyKey, KnownInput)>, StoreError>;

    /// Runs that have not ended, oldest first, without their texts: what a start counts and takes up again.
    async fn unfinished_runs(&self) -> Result<Vec<UnfinishedRun>, StoreError>;
}

/// A command, or an answer to a question, that was acted on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActedOn {
    /// What makes a second delivery recognisable.
    pub key: IdempotencyKey,
    /// What tells a second delivery from something else under the same key, see [`Sent`](crate::sent::Sent). `None` for a
    /// secret, of which no digest is kept.
    pub digest: Option<String>,
    /// Whether it was refused for good: sent again under its key, it is not tried again.
    pub refused: bool,
}

/// A run that has not ended, for counting it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedRun {
    /// The run.
    pub run_id: RunId,
    /// Its session.
    pub session: SessionKey,
    /// The channel that its message came through.
    pub channel: ChannelId,
    /// Who sent the message, by the id within the channel.
    pub principal: String,
    /// What it is.
    pub work: Work,
    /// Bytes of the message's text, and of the history that came with it as long as the run has not begun.
    pub bytes: u64,
    /// Whether it has begun: it was at work, or rests on a question.
    pub begun: bool,
}

/// Commands and answers whose keys are kept. 1024: days of them on a busy bot, and platforms deliver again within a day.
pub const ACTED_ON_KEPT: usize = 1024;

/// Messages whose keys commands are compared with at once, without asking the store. 1024: as many as commands.
pub const RECENT_INPUTS: usize = 1024;
