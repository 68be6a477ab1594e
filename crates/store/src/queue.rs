//! A bounded queue from async callers to threads of our own.
//!
//! Not `tokio::sync::mpsc`: the writer must wait for the next job *or* a deadline without a runtime, and only the
//! standard channel has `recv_timeout`. The places are a semaphore, so that a full queue is waited for without blocking
//! a runtime worker.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use belay_protocol::StoreError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a thread takes out of its queue.
pub(crate) enum Letter<J> {
    /// Work. Its place becomes free when the permit is dropped.
    Job(J, OwnedSemaphorePermit),
    /// Nothing follows: finish and end. One for each thread that listens.
    Close,
}

/// The sending end.
pub(crate) struct Queue<J> {
    letters: SyncSender<Letter<J>>,
    places: Arc<Semaphore>,
    listeners: usize,
}

/// A queue of `capacity` places for this many listening threads.
pub(crate) fn queue<J>(capacity: usize, listeners: usize) -> (Queue<J>, Receiver<Letter<J>>) {
    // Room for the closing letters too, so that sending never blocks: each job has a place of the semaphore.
    let (letters, receiver) = sync_channel(capacity + listeners);
    (Queue { letters, places: Arc::new(Semaphore::new(capacity)), listeners }, receiver)
}

impl<J> Queue<J> {
    /// Waits for a place and hands the job over.
    ///
    /// # Cancel safety
    /// Dropped before it returns, the job has not been handed over.
    pub(crate) async fn send(&self, job: J) -> Result<(), StoreError> {
        let place = self.places.clone().acquire_owned().await.map_err(|_| closed())?;
        self.letters.try_send(Letter::Job(job, place)).map_err(|_| closed())
    }

    /// Lets the threads finish what is in the queue and end. Whoever still waits for a place is refused.
    pub(crate) fn close(&self) {
        if self.places.is_closed() {
            return;
        }
        self.places.close();
        for _ in 0..self.listeners {
            let _ = self.letters.try_send(Letter::Close); // the thread has ended by itself: that is what was wanted
        }
    }
}

/// The answer of a store that takes nothing any more.
pub(crate) fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}
