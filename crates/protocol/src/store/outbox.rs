//! Replies that wait for delivery: the port [`Outbox`].

use async_trait::async_trait;
use tokio::sync::watch;

use crate::cluster::WorkLease;
use crate::ids::{ApprovalId, ChannelId, OutboxId, RunId};
use crate::outbound::Outbound;
use crate::route::ReplyRoute;
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// Keeps the messages that are committed and not delivered yet.
///
/// Of several nodes, the holder of a channel's lease sends the messages of the channel. A daemon that uses its database
/// alone has no leases, and passes `None`.
#[async_trait]
pub trait Outbox: Send + Sync {
    /// Commits a message that is not the reply of a run.
    async fn enqueue(&self, message: Outbound) -> Result<(), StoreError>;
    /// The oldest undelivered row of each conversation that is not in `busy`, oldest first, without rows that are not
    /// due yet. At most `limit` rows, and at most `callbacks` of them with an [`Outbound::callback`]. With leases, only
    /// rows of their channels.
    async fn due(
        &self,
        now: UnixMillis,
        busy: &[ReplyRoute],
        leases: Option<&[WorkLease]>,
        limit: u32,
        callbacks: u32,
    ) -> Result<Vec<OutboxRow>, StoreError>;
    /// The time at which the next row becomes due; `None`: no row waits for a time. With leases, only rows of their
    /// channels count.
    async fn next_due(&self, leases: Option<&[WorkLease]>) -> Result<Option<UnixMillis>, StoreError>;
    /// Records the start or the end of an attempt. [`OutboxState::Sending`] is committed before the platform is called. With
    /// the end of a delivery, the event that tells its outcome is appended, dated `at`. `lease`: the lease of the
    /// message's channel.
    ///
    /// # Errors
    /// [`StoreError::WorkLost`]: the lease is lost, and nothing was written. The message must not be sent.
    /// [`StoreError::NotFound`]: the delivery has ended, or another attempt is in progress.
    async fn mark(
        &self,
        id: OutboxId,
        state: OutboxState,
        at: UnixMillis,
        lease: Option<&WorkLease>,
    ) -> Result<(), StoreError>;
    /// Stores the text and the question of an undelivered message as hooks have changed them. The message counts as
    /// checked. Committed.
    async fn put_checked(&self, message: &Outbound) -> Result<(), StoreError>;
    /// Turns the rows in the state `sending` into `ambiguous` and returns them. Callbacks wait again instead: their
    /// receivers recognise a repetition. So do messages of the channels in `settling`, which settle an unknown result
    /// themselves; they keep [`OutboxRow::unsure_since`]. Called at the start: an earlier daemon died during these
    /// deliveries. Their events, dated `at`, are appended with it.
    ///
    /// With leases, it settles only rows of their channels whose attempt began under this epoch or an earlier one. Called
    /// with each lease that the node obtains, while it has no delivery of the channel in progress.
    async fn settle_interrupted(
        &self,
        at: UnixMillis,
        leases: Option<&[WorkLease]>,
        settling: &[ChannelId],
    ) -> Result<Vec<OutboxRow>, StoreError>;
    /// The question that the newest delivered message of this conversation shows, of the messages since the first question
    /// of this run; `None`: it shows none.
    async fn shown_last(&self, route: &ReplyRoute, run: RunId) -> Result<Option<ApprovalId>, StoreError>;
    /// Changes whenever a row is committed.
    fn committed(&self) -> watch::Receiver<u64>;
}

/// A row of the outbox.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxRow {
    /// The message.
    pub message: Outbound,
    /// The attempts so far.
    pub attempts: u32,
    /// When the first attempt began whose result is unknown; `None`: the results of all attempts are known.
    pub unsure_since: Option<UnixMillis>,
}

/// The state of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboxState {
    /// It is being sent. Raises the attempts by one. From here on its result is unknown, unless it was before.
    Sending,
    /// The platform has accepted it.
    Sent,
    /// It is retried later.
    Waiting {
        /// The time of the next attempt.
        until: UnixMillis,
        /// The parts that the platform has accepted.
        pieces_sent: u32,
        /// See [`OutboxRow::unsure_since`].
        unsure_since: Option<UnixMillis>,
    },
    /// The platform may have accepted it. It is not retried.
    Ambiguous,
    /// It has failed permanently.
    Failed,
}
