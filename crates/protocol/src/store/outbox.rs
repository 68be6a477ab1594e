//! Replies that wait for delivery: the port [`Outbox`].

use async_trait::async_trait;
use tokio::sync::watch;

use crate::ids::OutboxId;
use crate::outbound::Outbound;
use crate::route::ReplyRoute;
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// Replies that are committed and not yet delivered.
#[async_trait]
pub trait Outbox: Send + Sync {
    /// Commits a message that is no run's reply.
    async fn enqueue(&self, message: Outbound) -> Result<(), StoreError>;
    /// The oldest undelivered row of each conversation that is not in `busy`, oldest first; rows not due yet are left out.
    async fn due(&self, now: UnixMillis, busy: &[ReplyRoute], limit: u32) -> Result<Vec<OutboxRow>, StoreError>;
    /// When the next row that is not due yet becomes due.
    async fn next_due(&self) -> Result<Option<UnixMillis>, StoreError>;
    /// Records an attempt's beginning or its end. Committed for [`OutboxState::Sending`] before the platform is asked.
    async fn mark(&self, id: OutboxId, state: OutboxState) -> Result<(), StoreError>;
    /// Turns rows found in `sending` at the start into `ambiguous` and returns them: a dead daemon was in the middle.
    async fn settle_interrupted(&self) -> Result<Vec<OutboxRow>, StoreError>;
    /// Changes whenever a row is committed.
    fn committed(&self) -> watch::Receiver<u64>;
}

/// A row of the outbox.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxRow {
    /// The message.
    pub message: Outbound,
    /// Attempts so far.
    pub attempts: u32,
}

/// Where a delivery stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboxState {
    /// Being sent: raises the attempts by one.
    Sending,
    /// Taken by the platform.
    Sent,
    /// To be tried again at this date; so many pieces have been taken.
    Waiting {
        /// Not before.
        until: UnixMillis,
        /// Pieces taken.
        pieces_sent: u32,
    },
    /// Perhaps taken, and not tried again.
    Ambiguous,
    /// Given up.
    Failed,
}
