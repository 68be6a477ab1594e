//! Threads that only read. They see committed data and never wait for the writer.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use belay_protocol::StoreError;
use rusqlite::trace::TraceEventCodes;
use tokio::sync::oneshot;

use super::connection::Connection;
use super::tx::Done;
use super::writer::Counters;
use crate::queue::{Item, Queue, closed};

/// The number of reading threads.
pub(super) const READERS: usize = 2;

/// The maximum number of queued reads. Beyond it, callers wait.
pub(super) const READ_QUEUE: usize = 256;

/// One read without its types.
pub(super) type Read = Box<dyn FnOnce(&Connection) + Send>;

thread_local! {
    /// Statements that this thread has begun on connections that count, since they were last taken.
    static BEGUN: Cell<u64> = const { Cell::new(0) };
}

/// Counts the statements that begin on this connection. SQLite calls a function for each of them, so that no query can
/// be left out. The function has no context: the thread keeps the count until [`counted`] takes it.
pub(super) fn count_statements(conn: &rusqlite::Connection) {
    conn.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(|_| BEGUN.set(BEGUN.get() + 1)));
}

/// Executes a read and adds its statements to the counters.
pub(super) fn counted<T>(counters: &Counters, read: impl FnOnce() -> T) -> T {
    BEGUN.set(0);
    let done = read();
    counters.read_statements.fetch_add(BEGUN.get(), Ordering::Relaxed);
    done
}

/// Executes reads until the queue is closed. The readers share one queue; the thread that holds the receiver waits for
/// the next item.
pub(super) fn run(conn: &Connection, items: &Mutex<Receiver<Item<Read>>>, counters: &Counters) {
    loop {
        let item = items.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match item {
            Ok(Item::Job(read, _slot)) => counted(counters, || read(conn)),
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
