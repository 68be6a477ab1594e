//! The log of events: the port [`EventLog`].

use async_trait::async_trait;
use tokio::sync::watch;

use crate::event::{Event, NewEvent, Seq};
use crate::ids::{RunId, SessionKey};
use crate::store_error::StoreError;

/// The log of events.
#[async_trait]
pub trait EventLog: Send + Sync {
    /// Stores events that belong to no other write. Relaxed.
    async fn append(&self, events: Vec<NewEvent>) -> Result<(), StoreError>;
    /// The events after a number, in order.
    async fn read(&self, query: EventQuery) -> Result<Vec<Event>, StoreError>;
    /// The number of the last committed event. It changes with every commit that adds one. A reader waits on it and
    /// reads from its own cursor, so that even a slow reader misses no event.
    ///
    /// It learns of the commits of other nodes after a while: [`EventLog::newest`] may be ahead of it.
    fn tip(&self) -> watch::Receiver<Seq>;
    /// The number of the last committed event, read from the store; 0 if there is none. One read: for a cursor that
    /// another node may have given, beyond the [tip](EventLog::tip).
    async fn newest(&self) -> Result<Seq, StoreError>;
}

/// The filter of a read.
#[derive(Clone, Debug, Default)]
pub struct EventQuery {
    /// Only events after this number.
    pub after: Seq,
    /// Only events of this run.
    pub run: Option<RunId>,
    /// Only events of this session.
    pub session: Option<SessionKey>,
    /// The maximum count; 0 means 256.
    pub limit: u32,
}
