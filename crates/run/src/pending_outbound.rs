//! Messages that a run has made and not committed yet.

use std::sync::{Arc, Mutex, PoisonError};

use belay_protocol::{EventKind, Outbound};

/// Messages that go out with the run's next write. Clones share them. Locked for an append, never across an await.
#[derive(Clone, Default)]
pub struct PendingOutbound(Arc<Mutex<OutboundBatch>>);

/// Messages and the facts that belong to them.
#[derive(Default)]
pub struct OutboundBatch {
    /// To be delivered, in this order.
    pub messages: Vec<Outbound>,
    /// What hooks have done about them.
    pub facts: Vec<EventKind>,
}

impl PendingOutbound {
    /// Adds messages to the next write.
    pub fn add(&self, batch: OutboundBatch) {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.messages.extend(batch.messages);
        pending.facts.extend(batch.facts);
    }

    /// Takes what the next write commits.
    pub fn take(&self) -> OutboundBatch {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
