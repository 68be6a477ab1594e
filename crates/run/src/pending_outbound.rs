//! Messages that a run has created and not committed yet.

use std::sync::{Arc, Mutex, PoisonError};

use belay_protocol::{EventKind, Outbound};

/// Queue of messages that the run's next write commits. Clones share it. Its lock is held for an append, never across
/// an await.
#[derive(Clone, Default)]
pub struct PendingOutbound(Arc<Mutex<OutboundBatch>>);

/// Messages, and the events that belong to them.
#[derive(Default)]
pub struct OutboundBatch {
    /// Messages to deliver, in this order.
    pub messages: Vec<Outbound>,
    /// Events of hooks about the messages.
    pub facts: Vec<EventKind>,
}

impl PendingOutbound {
    /// Adds messages to the next write.
    pub fn add(&self, batch: OutboundBatch) {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.messages.extend(batch.messages);
        pending.facts.extend(batch.facts);
    }

    /// Takes the messages that the next write commits.
    pub fn take(&self) -> OutboundBatch {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
