//! The log of events: the port [`EventLog`].

use async_trait::async_trait;
use tokio::sync::watch;

use crate::event::{Event, NewEvent, Seq};
use crate::ids::{RunId, SessionKey};
use crate::store_error::StoreError;

/// The log of facts.
#[async_trait]
pub trait EventLog: Send + Sync {
    /// Stores facts that belong to no other write. Relaxed.
    async fn append(&self, events: Vec<NewEvent>) -> Result<(), StoreError>;
    /// Facts after a number, in order.
    async fn read(&self, query: EventQuery) -> Result<Vec<Event>, StoreError>;
    /// The number of the last committed fact. Changes with every commit that adds one: a reader waits on it, reads from
    /// its own cursor, and so misses nothing however slow it is.
    fn tip(&self) -> watch::Receiver<Seq>;
}

/// Which facts.
#[derive(Clone, Debug, Default)]
pub struct EventQuery {
    /// After this one.
    pub after: Seq,
    /// Of this run only.
    pub run: Option<RunId>,
    /// Of this session only.
    pub session: Option<SessionKey>,
    /// At most so many; 0 means 256.
    pub limit: u32,
}
