//! What the dispatcher stores, and reads at its start: the port [`DispatcherStore`].

use async_trait::async_trait;

use super::KnownInput;
use crate::idempotency::IdempotencyKey;
use crate::ids::{BootId, ChannelId, RunId, SessionKey};
use crate::run_status::RunStatus;
use crate::store_error::StoreError;
use crate::time::UnixMillis;
use crate::work::{Work, WorkSource};

/// Keeps what the dispatcher has to know after a restart: the keys of commands and messages, and the runs that have not
/// ended.
#[async_trait]
pub trait DispatcherStore: Send + Sync {
    /// Claims the key of a command or an answer to an approval request before it is carried out, also for other nodes.
    /// The claim lasts until [`Self::note_acted_on`] or [`Self::release_key`]. The newest [`ACTED_ON_KEPT`] keys are kept.
    /// Committed.
    async fn claim_key(&self, claim: KeyClaim) -> Result<Claimed, StoreError>;

    /// Deletes the claim of a command or an answer that was not carried out, if `owner` has it. Committed.
    async fn release_key(&self, key: &IdempotencyKey, owner: BootId) -> Result<(), StoreError>;

    /// Records that a command or an answer to an approval request was carried out; once for each key, with the first
    /// content. Ends its claim. The newest [`ACTED_ON_KEPT`] are kept. Committed.
    async fn note_acted_on(&self, acted_on: &ActedOn, at: UnixMillis) -> Result<(), StoreError>;

    /// The recorded commands and answers without a claim, oldest first: they recognise redeliveries after a restart.
    async fn acted_on(&self) -> Result<Vec<ActedOn>, StoreError>;

    /// Those of the newest [`RECENT_INPUTS`] messages that have a key, oldest first. After a restart they recognise a
    /// command under the key of an earlier message.
    async fn recent_inputs(&self) -> Result<Vec<(IdempotencyKey, KnownInput)>, StoreError>;

    /// The runs that have not ended, oldest first, without their texts: a start counts and resumes them. Runs of
    /// sessions whose lane a living node owns are left out: they are known to that node.
    async fn unfinished_runs(&self) -> Result<Vec<UnfinishedRun>, StoreError>;
}

/// A command, or an answer to an approval request, that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActedOn {
    /// The key that recognises a redelivery.
    pub key: IdempotencyKey,
    /// The digest that distinguishes a redelivery from another message under the same key, see
    /// [`Sent`](crate::sent::Sent). `None` for a secret, whose digest is not kept.
    pub digest: Option<String>,
    /// Whether it was refused permanently: a redelivery is not tried again.
    pub refused: bool,
}

/// A claim to the key of a command or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyClaim {
    /// The key.
    pub key: IdempotencyKey,
    /// See [`ActedOn::digest`]. A claim with another digest takes over no claim.
    pub digest: Option<String>,
    /// The claimant. It has every claim of its own still.
    pub owner: BootId,
    /// The living node whose claim it takes over: the command came from there, and was not carried out there.
    pub from: Option<BootId>,
    /// The claim of a daemon that has ended is taken over if it was made at this date or later; `None`: never. For
    /// commands that may be carried out twice.
    pub again_since: Option<UnixMillis>,
    /// The time.
    pub at: UnixMillis,
}

/// The result of a claim to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The claimant has the key, and carries the command out.
    Now,
    /// A message has the key.
    Message(KnownInput),
    /// A command or an answer has the key.
    Used {
        /// See [`ActedOn::digest`].
        digest: Option<String>,
        /// Its state.
        state: ClaimState,
    },
}

/// The state of a command or an answer under its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimState {
    /// A living daemon carries it out.
    InProgress,
    /// The daemon that carried it out has ended before it recorded the result.
    Unknown,
    /// It was carried out.
    CarriedOut,
    /// It was refused permanently.
    Refused,
}

/// A run that has not ended, as the dispatcher counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedRun {
    /// The run.
    pub run_id: RunId,
    /// Its session.
    pub session: SessionKey,
    /// The channel of its message.
    pub channel: ChannelId,
    /// The sender of the message, by the id within the channel.
    pub principal: String,
    /// Its kind of work.
    pub work: Work,
    /// The source of autonomous work; `None` for other work.
    pub source: Option<WorkSource>,
    /// The length of the message's text in bytes, plus that of its history until the run begins.
    pub bytes: u64,
    /// Its status: it waits in the queue, was running, or is paused.
    pub status: RunStatus,
}

/// The number of commands and answers whose keys are kept. 1024: several days of a busy bot, and platforms redeliver
/// for a day.
pub const ACTED_ON_KEPT: usize = 1024;

/// The number of messages whose keys are compared with commands without a query of the store. 1024: as for commands.
pub const RECENT_INPUTS: usize = 1024;
