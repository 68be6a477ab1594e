//! A bounded queue from async callers to the store's own threads.
//!
//! `tokio::sync::mpsc` does not fit: the writer waits for the next job *or* a deadline without a runtime, and only the
//! standard channel has `recv_timeout`. A semaphore counts the slots, so that callers wait for a full queue without
//! blocking a worker of the runtime.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use belay_protocol::StoreError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// An item of the queue.
pub(crate) enum Item<J> {
    /// A job. Its slot becomes free when the permit is dropped.
    Job(J, OwnedSemaphorePermit),
    /// The end: the thread finishes and exits. There is one for each thread.
    Close,
}

/// The sending end.
pub(crate) struct Queue<J> {
    items: SyncSender<Item<J>>,
    slots: Arc<Semaphore>,
    listeners: usize,
}

/// A queue of `capacity` slots for this many listening threads.
pub(crate) fn queue<J>(capacity: usize, listeners: usize) -> (Queue<J>, Receiver<Item<J>>) {
    // Capacity for the closing items too, so that sending never blocks: each job has a slot of the semaphore.
    let (items, receiver) = sync_channel(capacity + listeners);
    (Queue { items, slots: Arc::new(Semaphore::new(capacity)), listeners }, receiver)
}

impl<J> Queue<J> {
    /// Waits for a slot and passes the job to a thread.
    ///
    /// # Cancel safety
    /// If the future is dropped before it returns, the job was not passed on.
    pub(crate) async fn send(&self, job: J) -> Result<(), StoreError> {
        let slot = self.slots.clone().acquire_owned().await.map_err(|_| closed())?;
        self.items.try_send(Item::Job(job, slot)).map_err(|_| closed())
    }

    /// Passes the job to a thread if a slot is free; otherwise drops it.
    pub(crate) fn try_send(&self, job: J) {
        if let Ok(slot) = self.slots.clone().try_acquire_owned() {
            let _ = self.items.try_send(Item::Job(job, slot)); // the threads have ended
        }
    }

    /// Makes the threads finish the queued jobs and exit. Callers that wait for a slot get an error.
    pub(crate) fn close(&self) {
        if self.slots.is_closed() {
            return;
        }
        self.slots.close();
        for _ in 0..self.listeners {
            let _ = self.items.try_send(Item::Close); // the thread has ended already
        }
    }
}

/// The error of a closed store.
pub(crate) fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}
