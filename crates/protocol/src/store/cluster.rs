//! Several daemons over one database: the ports [`ClusterStore`], [`WorkLeases`], [`OrderStore`], [`MailStore`] and
//! [`Hints`].
//!
//! The registration of a node and the renewal of its lease are not here: they have a connection of their own, which no
//! other work of the store can delay.

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::watch;

use crate::cluster::{LeasedWork, NodeMail, NodeRecord, OpenMail, OrderTarget, StopOrder, Topic, WorkLease};
use crate::ids::{BootId, MailId, OrderId, SessionKey};
use crate::lease::Lease;
use crate::stop::RunEnd;
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// The nodes.
#[async_trait]
pub trait ClusterStore: Send + Sync {
    /// The living nodes, and those that ended within the last day; the newest start first.
    async fn nodes(&self) -> Result<Vec<NodeRecord>, StoreError>;

    /// Ends the nodes whose lease is over, by the clock of the database, and returns those that this call has ended. It
    /// is the only way in which a node ends without its own doing. Committed.
    async fn end_expired(&self) -> Result<Vec<BootId>, StoreError>;

    /// Marks a node as draining: it accepts no new work. Committed.
    async fn begin_drain(&self, boot: BootId) -> Result<(), StoreError>;

    /// Releases the lanes, jobs and leases of a node, and ends it. Other nodes may claim them at once. Committed.
    async fn release(&self, boot: BootId) -> Result<(), StoreError>;
}

/// Work that one node does at a time.
#[async_trait]
pub trait WorkLeases: Send + Sync {
    /// Claims a work that has no living owner, or that `boot` has already; `None`: another node does it. Committed.
    async fn claim(&self, work: &LeasedWork, boot: BootId) -> Result<Option<WorkLease>, StoreError>;

    /// Releases a work. Nothing happens if another node has it. Committed.
    async fn give_up(&self, lease: &WorkLease) -> Result<(), StoreError>;

    /// All leases with a living owner.
    async fn leases(&self) -> Result<Vec<WorkLease>, StoreError>;
}

/// Stops that apply to all nodes.
#[async_trait]
pub trait OrderStore: Send + Sync {
    /// Writes an order. Nothing happens if its id is known. Committed.
    async fn order(&self, order: StopOrder) -> Result<(), StoreError>;

    /// The orders after a number, in order, each with its number; at most `limit`.
    async fn orders_after(&self, number: u64, limit: u32) -> Result<Vec<(u64, StopOrder)>, StoreError>;

    /// The number of the newest order; 0: there is none.
    async fn newest_order(&self) -> Result<u64, StoreError>;

    /// Writes what a node has stopped: JSON. Replaces its earlier report. Committed.
    async fn acknowledge(&self, order: OrderId, boot: BootId, report: Value) -> Result<(), StoreError>;

    /// What nodes have stopped so far.
    async fn acknowledgements(&self, order: OrderId) -> Result<Vec<(BootId, Value)>, StoreError>;
}

/// The end of the run of a message that no lane has accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct MailEnd {
    /// The end.
    pub end: RunEnd,
    /// Its time.
    pub at: UnixMillis,
}

/// Mail for lanes that other nodes own.
#[async_trait]
pub trait MailStore: Send + Sync {
    /// Writes mail. Nothing happens if its id is known. Committed.
    async fn send(&self, mail: NodeMail) -> Result<(), StoreError>;

    /// The open mail for lanes that `owner` owns, or that no living node owns, in order; at most `limit`. `session`: only
    /// that for this lane.
    async fn open_mail(
        &self,
        owner: BootId,
        session: Option<&SessionKey>,
        limit: u32,
    ) -> Result<Vec<OpenMail>, StoreError>;

    /// The open messages that a stop concerns, of all lanes, in order; at most `limit`.
    async fn open_messages(&self, target: &OrderTarget, limit: u32) -> Result<Vec<NodeMail>, StoreError>;

    /// Marks mail as begun. `false`: it is answered, or the lane has it already with this lease. Committed.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]: another node owns the lane.
    async fn take(&self, mail: MailId, lease: &Lease) -> Result<bool, StoreError>;

    /// Writes the answer to mail: JSON. The first answer counts. `false`: it has one already. `end`: the end of the run of
    /// a message that was not accepted. It is kept as long as the answer, with the events of the run. Committed.
    async fn answer(&self, mail: MailId, ack: Value, end: Option<MailEnd>) -> Result<bool, StoreError>;

    /// Answers a message that was not accepted. If its sender has acknowledged it, its run gets this end; without an end,
    /// the mail stays open then. `false`: it stays open, or has an answer already. Committed.
    async fn refuse(&self, mail: MailId, ack: Value, end: Option<MailEnd>) -> Result<bool, StoreError>;

    /// Records that the sender acknowledges a message without an answer. `false`: it has an answer. Committed.
    async fn promise(&self, mail: MailId) -> Result<bool, StoreError>;

    /// Those of the mails that are answered.
    async fn answers(&self, mails: &[MailId]) -> Result<Vec<(MailId, Value)>, StoreError>;
}

/// Wakes the readers of what other nodes change.
pub trait Hints: Send + Sync {
    /// Changes after a commit of any node that concerns the topic, and at least once a second. A reader reads its rows
    /// whenever it changes: the rows are the truth.
    fn changes(&self, topic: Topic) -> watch::Receiver<u64>;
}
