//! The writes of a lane: the port [`LaneStore`].

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::KnownInput;
use crate::approval::{Asker, Gate};
use crate::event::NewEvent;
use crate::idempotency::IdempotencyKey;
use crate::ids::{BootId, ChannelId, RunId, SessionKey, ThreadId};
use crate::lease::Lease;
use crate::message::Message;
use crate::options::RunOptions;
use crate::provenance::Provenance;
use crate::route::ReplyRoute;
use crate::run::RunUsage;
use crate::run_status::RunStatus;
use crate::session::SessionLifetime;
use crate::store_error::StoreError;
use crate::thread::ThreadState;
use crate::time::UnixMillis;
use crate::work::Work;

/// The state of a session and its threads, written by the owner of the session's lane.
#[async_trait]
pub trait LaneStore: Send + Sync {
    /// Makes `owner` the owner of the session's lane with a raised epoch, creating session and thread where there are
    /// none, and returns what is there. Takes the lane from any earlier owner: the caller knows that owner to be dead.
    /// `lifetime` is that of a session that is created; one that exists keeps its own.
    async fn open_lane(
        &self,
        session: &SessionKey,
        lifetime: SessionLifetime,
        owner: BootId,
        at: UnixMillis,
    ) -> Result<OpenedLane, StoreError>;

    /// Commits a new message, unless its key is known. With `start`, its run begins in the same commit: status
    /// `running`, attempt 1, the user message appended to the thread, thread state `Processing`.
    ///
    /// Writes the events `run_accepted` and, with `start`, `run_started` in the same commit.
    async fn accept(&self, lease: &Lease, input: NewInput) -> Result<Acceptance, StoreError>;

    /// Replaces the message of a queued run that never began: somebody has edited it. Committed.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]: the run has begun, has ended, or never was.
    async fn replace_message(&self, lease: &Lease, edited: EditedMessage) -> Result<(), StoreError>;

    /// The newest run of a session whose message has this id on its platform; `None`: there is none. For edits that come when
    /// the message does not wait any more.
    async fn sent_message(&self, session: &SessionKey, message_id: &str) -> Result<Option<SentMessage>, StoreError>;

    /// Changes what the thread shows, for `/undo` and its like, and writes the event `thread_edited` where it did
    /// something. A turn at work is left as it is; without one, the thread is idle afterwards. Committed.
    async fn edit_thread(&self, lease: &Lease, edit: ThreadEdit, at: UnixMillis) -> Result<EditOutcome, StoreError>;

    /// Keeps what a session asks of all its runs. Committed.
    async fn set_options(&self, lease: &Lease, options: RunOptions) -> Result<(), StoreError>;

    /// Switches loop detection on or off for the session. Committed.
    async fn set_loop_detection(&self, lease: &Lease, on: bool) -> Result<(), StoreError>;
}

/// A lane as its new owner finds it.
#[derive(Clone, Debug)]
pub struct OpenedLane {
    /// The proof of ownership.
    pub lease: Lease,
    /// The active thread.
    pub thread: ThreadSnapshot,
    /// Runs that have not ended, in the order of acceptance.
    pub unfinished: Vec<PendingRun>,
    /// Whether loops are looked for in the session's runs; on until somebody switches it off.
    pub loop_detection: bool,
    /// What the session asks of all its runs.
    pub options: RunOptions,
    /// Whether nothing was ever said in the active thread: no run has begun in it, and none waits to.
    pub fresh: bool,
    /// When a person last said something in the session; `None`: never, as far as is known.
    pub spoken_at: Option<UnixMillis>,
}

/// The active thread of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSnapshot {
    /// Its id.
    pub id: ThreadId,
    /// Its state.
    pub state: ThreadState,
    /// The account of older messages that compaction has replaced.
    pub summary: Option<String>,
    /// The visible messages of ended turns, oldest first, each with its position in the thread. Messages of scope
    /// [`crate::message::MessageScope::Run`] are left out.
    pub messages: Vec<(u64, Arc<Message>)>,
}

/// A run that a restart finds unfinished.
#[derive(Clone, Debug)]
pub struct PendingRun {
    /// The run.
    pub run_id: RunId,
    /// The message's text.
    pub text: String,
    /// Who wrote it and what came with it, as its platform says.
    pub provenance: Option<Arc<Provenance>>,
    /// Who sent it, and from what place.
    pub asker: Asker,
    /// The channel it came through.
    pub channel: ChannelId,
    /// What it is.
    pub work: Work,
    /// Where the reply goes.
    pub reply_to: Option<ReplyRoute>,
    /// The question that it rests on, or rested on last, with its answer.
    pub gate: Option<Gate>,
    /// `accepted`, `queued`, `running` or `paused`.
    pub status: RunStatus,
    /// What its message asks of it.
    pub options: RunOptions,
    /// How often it was taken up.
    pub attempt: u32,
    /// When it was accepted.
    pub accepted_at: UnixMillis,
    /// When it was first taken up.
    pub started_at: Option<UnixMillis>,
    /// What it had used at its last checkpoint.
    pub usage: RunUsage,
    /// What it had cost at its last checkpoint, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// The loop's state at its last checkpoint; before the first one, what came with the message.
    pub state: Option<Value>,
    /// The history that the message brought along, which its first start appends to the thread; empty after that.
    pub history: Vec<Message>,
    /// The run's messages so far, oldest first, with their positions: its user message and whatever checkpoints have
    /// added, those of run scope included, without those that [`JournalStore::compact_turn`](super::JournalStore::compact_turn) took away. Empty before its
    /// first start.
    pub messages: Vec<(u64, Arc<Message>)>,
}

/// A message to commit.
#[derive(Clone, Debug)]
pub struct NewInput {
    /// The run it makes; chosen by the dispatcher.
    pub run_id: RunId,
    /// Recognises duplicates.
    pub key: Option<IdempotencyKey>,
    /// The channel it came through.
    pub channel: ChannelId,
    /// What its run is.
    pub work: Work,
    /// Who sends it, and from what place.
    pub asker: Asker,
    /// The text.
    pub text: String,
    /// Who wrote it and what came with it, as its platform says. By its `message_id` an edit finds it.
    pub provenance: Option<Arc<Provenance>>,
    /// What a duplicate is told from another message by: the digest of what was sent, of which hooks may have made another
    /// text since. See [`Sent`](crate::sent::Sent). `None`: [`input_digest`] of the text.
    pub digest: Option<String>,
    /// Where the reply goes.
    pub reply_to: Option<ReplyRoute>,
    /// What it asks of its run.
    pub options: RunOptions,
    /// Facts to store behind `run_accepted`.
    pub events: Vec<NewEvent>,
    /// Messages to append to the thread before the user message, for a fresh session with a history of its own.
    pub history: Vec<Message>,
    /// The loop's state to begin with, kept until a checkpoint brings another; `None`: nothing to begin with.
    pub state: Option<Value>,
    /// The date.
    pub at: UnixMillis,
    /// Whether the run begins with this commit.
    pub start: bool,
    /// Whether a person says it: what a timer sends keeps no conversation alive.
    pub spoken: bool,
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acceptance {
    /// It is committed.
    New,
    /// Its key is known, with the same digest.
    Known(KnownInput),
    /// Its key is known, with another digest.
    Conflict(KnownInput),
}

/// A message that waits, as its sender has edited it.
#[derive(Clone, Debug)]
pub struct EditedMessage {
    /// Its run.
    pub run: RunId,
    /// What it says now.
    pub text: String,
    /// What is known of it now.
    pub provenance: Option<Arc<Provenance>>,
    /// The [`input_digest`] of the text that was sent, of which hooks may have made another one since.
    pub digest: String,
}

/// A message as a later edit of it is compared with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentMessage {
    /// Its run.
    pub known: KnownInput,
    /// The digest of its last edit; `None`: it was not edited before its turn.
    pub edited: Option<String>,
}

impl SentMessage {
    /// Whether it says what that digest is of: platforms call a message edited when only its preview has changed.
    pub fn says(&self, digest: &str) -> bool {
        *digest == self.known.digest || self.edited.as_deref() == Some(digest)
    }
}

/// A change to what a thread shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadEdit {
    /// Hides the last visible turn. At most 20 in a row.
    Undo,
    /// Shows the turn that was hidden last. Impossible once a new turn has begun.
    Redo,
    /// Hides everything, for good; the summary too.
    Clear,
    /// Completes this thread and opens another.
    New,
}

/// What an edit did.
#[derive(Clone, Debug)]
pub enum EditOutcome {
    /// Done; this is the active thread now.
    Done(ThreadSnapshot),
    /// There was nothing to undo or redo.
    Nothing,
}
