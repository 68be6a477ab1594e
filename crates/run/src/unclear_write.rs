//! A write of a run that failed while nobody could tell whether it was done: the connection was lost during its commit.

use std::fmt;
use std::sync::Arc;

use belay_protocol::{
    Checkpoint, Clock, Durability, EventKind, EventLog, EventQuery, JournalStore, Lease, Message, NewEvent, Outbound,
    Seq, StoreError, UnixMillis,
};

/// Maximum number of events that are read to find out whether a write was done. Far more than a run and its parts can
/// write between the last commit before an outage and the first one after it.
const READ_BACK: u32 = 1_000;

/// The ports of a journal.
pub struct JournalPorts {
    /// Stores the progress of the run.
    pub store: Arc<dyn JournalStore>,
    /// Shows whether a write was done whose answer was lost.
    pub events: Arc<dyn EventLog>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// A write, and the place of the log from which it can be found.
pub struct UnclearWrite {
    ports: Arc<JournalPorts>,
    lease: Lease,
    before: Seq,
    write: Checkpoint,
}

impl UnclearWrite {
    /// This write, which is attempted from now on.
    pub(crate) fn new(ports: &Arc<JournalPorts>, lease: &Lease, write: Checkpoint) -> Self {
        let before = *ports.events.tip().borrow();
        Self { ports: ports.clone(), lease: lease.clone(), before, write }
    }

    /// The write.
    pub(crate) fn write(&self) -> &Checkpoint {
        &self.write
    }

    /// Whether a failure with this error leaves open that the write was done. A relaxed write that failed was not done.
    pub(crate) fn is_open(&self, error: &StoreError) -> bool {
        let Checkpoint { used, joined, durability, .. } = &self.write;
        let committed = *durability == Durability::Committed || !used.is_empty() || !joined.is_empty();
        committed && matches!(error, StoreError::Unavailable(_))
    }

    /// Whether the write was done. The store finds that out before its next commit: an empty one comes first. The events
    /// of the write then show it. A write without events appends nothing that could be there twice, or it is relaxed.
    ///
    /// # Errors
    /// The store does not answer, or the run is not running any more.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn is_done(&self) -> Result<bool, StoreError> {
        if self.write.events.is_empty() {
            return Ok(false);
        }
        let Checkpoint { run, usage, cost_micro_usd, .. } = self.write;
        let nothing = Checkpoint {
            run,
            messages: Vec::new(),
            state: None,
            usage,
            cost_micro_usd,
            events: Vec::new(),
            used: Vec::new(),
            joined: Vec::new(),
            outbound: Vec::new(),
            durability: Durability::Committed,
        };
        self.ports.store.checkpoint(&self.lease, nothing).await?;
        let since = EventQuery { after: self.before, run: Some(run), session: None, limit: READ_BACK };
        let stored = self.ports.events.read(since).await?;
        let stored: Vec<String> = stored.iter().map(|event| text_of(event.at, &event.kind)).collect();
        let wanted: Vec<String> = self.write.events.iter().map(|event| text_of(event.at, &event.kind)).collect();
        Ok(stored.windows(wanted.len()).any(|found| found == wanted))
    }

    /// Removes what this write has stored from what is not stored yet.
    pub fn remove_from(&self, messages: &mut Vec<Arc<Message>>, events: &mut Vec<NewEvent>, said: &mut Vec<Outbound>) {
        messages.drain(..self.leading(messages));
        events.retain(|event| !self.write.events.contains(event));
        said.retain(|message| !self.write.outbound.iter().any(|written| written.id == message.id));
    }

    /// How many of these messages, from the first one on, are those of the write.
    pub(crate) fn leading(&self, messages: &[Arc<Message>]) -> usize {
        let pairs = messages.iter().zip(&self.write.messages);
        pairs.take_while(|(one, written)| Arc::ptr_eq(one, written)).count()
    }
}

impl fmt::Debug for UnclearWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnclearWrite").field("before", &self.before).field("write", &self.write).finish_non_exhaustive()
    }
}

/// An event as the log returns it: without marks of untrusted content. PostgreSQL stores no character NUL, and U+FFFD replaces it.
fn text_of(at: UnixMillis, kind: &EventKind) -> String {
    let kind = kind.to_stored().unwrap_or_default(); // plain data always serialises
    format!("{} {}", at.0, kind.replace("\\u0000", "\u{fffd}"))
}
