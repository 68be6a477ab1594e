//! Threads that only read. They see committed data and never wait for the writer.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use belay_protocol::StoreError;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::tx::Done;
use crate::queue::{Item, Queue, closed};

/// The number of reading threads.
pub(super) const READERS: usize = 2;

/// The maximum number of queued reads. Beyond it, callers wait.
pub(super) const READ_QUEUE: usize = 256;

/// One read without its types.
pub(super) type Read = Box<dyn FnOnce(&Connection) + Send>;

/// Executes reads until the queue is closed. The readers share one queue; the thread that holds the receiver waits for
/// the next item.
pub(super) fn run(conn: &Connection, items: &Mutex<Receiver<Item<Read>>>) {
    loop {
        let item = items.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match item {
            Ok(Item::Job(read, _slot)) => read(conn),
            Ok(Item::Close) | Err(_) => return,
        }
    }
}

/// Passes a query to one of the readers.
pub(super) async fn read<T: Send + 'static>(
    queue: &Arc<Queue<Read>>,
    read: impl FnOnce(&Connection) -> Done<T> + Send + 'static,
) -> Result<T, StoreError> {
    let (caller, answer) = oneshot::channel();
    let job: Read = Box::new(move |conn| {
        let _ = caller.send(read(conn)); // whoever asked gave up waiting
    });
    queue.send(job).await?;
    match answer.await {
        Ok(result) => result.map_err(super::tx::Failure::into_store_error),
        Err(_) => Err(closed()),
    }
}
