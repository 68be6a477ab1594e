//! The writes of a lane: the port [`LaneStore`].

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::{ClaimState, KnownInput};
use crate::approval::{ApprovalRequest, Asker};
use crate::event::NewEvent;
use crate::idempotency::IdempotencyKey;
use crate::ids::{BootId, ChannelId, MailId, RunId, SessionKey, ThreadId};
use crate::lease::Lease;
use crate::message::Message;
use crate::options::RunOptions;
use crate::provenance::Provenance;
use crate::route::ReplyRoute;
use crate::run::RunUsage;
use crate::run_status::RunStatus;
use crate::sent_file::SentFile;
use crate::session::SessionLifetime;
use crate::store_error::StoreError;
use crate::thread::ThreadState;
use crate::time::UnixMillis;
use crate::work::{Work, WorkSource};

/// Stores the state of a session and its threads. The caller is the owner of the session's lane.
#[async_trait]
pub trait LaneStore: Send + Sync {
    /// Makes the claimant the owner of the session's lane with a raised epoch, and returns the stored state, if the
    /// claim allows it. Creates the session and its thread if there are none, except for [`ClaimMode::Own`]. `lifetime`
    /// is that of a new session; an existing one keeps its own.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]: the lane was to be opened again by its owner, and has another one.
    async fn open_lane(
        &self,
        session: &SessionKey,
        lifetime: SessionLifetime,
        claim: LaneClaim,
        at: UnixMillis,
    ) -> Result<Opening, StoreError>;

    /// Commits a new message, unless its key is known. With `start`, its run begins in the same commit: status
    /// `running`, attempt 1, the user message appended to the thread, thread state `Processing`.
    ///
    /// The same commit writes the events `run_accepted` and, with `start`, `run_started`. In a cluster it also answers the
    /// mail of the message, and nothing is written while earlier mail of the session is open, see [`NewInput::place`].
    async fn accept(&self, lease: &Lease, input: NewInput) -> Result<Acceptance, StoreError>;

    /// Replaces the text and the facts of the message of a queued run that has not begun, after an edit by its sender.
    /// The message keeps its attachments, and the words of its voice messages follow the new text, see
    /// [`with_spoken`](crate::attachment::with_spoken). Committed. Returns the facts that it has now.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]: the run has begun, has ended, or does not exist.
    async fn replace_message(
        &self,
        lease: &Lease,
        edited: EditedMessage,
    ) -> Result<Option<Arc<Provenance>>, StoreError>;

    /// The newest run of a session whose message has this id on its platform; `None`: there is none. For edits of
    /// messages that are no longer queued.
    async fn sent_message(&self, session: &SessionKey, message_id: &str) -> Result<Option<SentMessage>, StoreError>;

    /// Changes the visible part of the thread, for `/undo` and similar commands, and writes the event `thread_edited`
    /// if something has changed. A running turn is unchanged; without one the thread is idle afterwards. Committed.
    async fn edit_thread(&self, lease: &Lease, edit: ThreadEdit, at: UnixMillis) -> Result<EditOutcome, StoreError>;

    /// Stores the options of a session. Committed.
    async fn set_options(&self, lease: &Lease, options: RunOptions) -> Result<(), StoreError>;

    /// Enables or disables loop detection for the session. Committed.
    async fn set_loop_detection(&self, lease: &Lease, on: bool) -> Result<(), StoreError>;

    /// Gives a lane up: another node may claim it at once, with its unfinished runs. Nothing happens if another owner has
    /// it. Committed.
    async fn release_lane(&self, lease: &Lease) -> Result<(), StoreError>;
}

/// A claim to the lane of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneClaim {
    /// The claimant.
    pub owner: BootId,
    /// From whom it may take the lane.
    pub mode: ClaimMode,
}

impl LaneClaim {
    /// A claim to a lane that no other living node owns.
    pub fn free(owner: BootId) -> Self {
        Self { owner, mode: ClaimMode::Free }
    }
}

/// From whom a claim may take a lane. A boot lives if it is among the nodes and has not ended there. A daemon that uses
/// its database alone is not among the nodes, so that all its earlier boots have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimMode {
    /// From an owner that has ended, and from the claimant itself.
    Free,
    /// Also from a living owner, if the session has no unfinished run.
    Idle,
    /// From the claimant itself alone: the lane has this epoch, or a later one of the same boot, as after an opening
    /// whose answer was lost.
    Own(u64),
}

/// The result of a claim.
#[derive(Clone, Debug)]
pub enum Opening {
    /// The claimant owns the lane.
    Opened(Box<OpenedLane>),
    /// This living node owns the lane, and keeps it.
    OwnedBy(BootId),
}

impl Opening {
    /// The opened lane; `None`: another node keeps it.
    pub fn opened(self) -> Option<OpenedLane> {
        match self {
            Self::Opened(opened) => Some(*opened),
            Self::OwnedBy(_) => None,
        }
    }
}

/// The stored state of a lane, for its new owner.
#[derive(Clone, Debug)]
pub struct OpenedLane {
    /// The proof of ownership.
    pub lease: Lease,
    /// The active thread.
    pub thread: ThreadSnapshot,
    /// The runs that have not ended, in order of acceptance.
    pub unfinished: Vec<PendingRun>,
    /// Whether loop detection is enabled for the session; enabled by default.
    pub loop_detection: bool,
    /// The options of the session.
    pub options: RunOptions,
    /// Whether the active thread is empty: no run has begun in it, and none is queued.
    pub fresh: bool,
    /// The time of the last message of a person in the session; `None`: none is known.
    pub spoken_at: Option<UnixMillis>,
}

/// The active thread of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSnapshot {
    /// Its id.
    pub id: ThreadId,
    /// Its state.
    pub state: ThreadState,
    /// The summary of older messages that compaction has replaced.
    pub summary: Option<String>,
    /// The visible messages of ended turns, oldest first, each with its position in the thread. Messages of scope
    /// [`crate::message::MessageScope::Run`] are left out.
    pub messages: Vec<(u64, Arc<Message>)>,
    /// Whether the store has the skills that it began with.
    pub has_skills: bool,
}

/// A run that has not ended, as a restart finds it.
#[derive(Clone, Debug)]
pub struct PendingRun {
    /// The run.
    pub run_id: RunId,
    /// The text of the message.
    pub text: String,
    /// The platform's facts about the message.
    pub provenance: Option<Arc<Provenance>>,
    /// The sender.
    pub asker: Asker,
    /// The channel of the message.
    pub channel: ChannelId,
    /// The kind of work.
    pub work: Work,
    /// The source of autonomous work; `None` for other work.
    pub source: Option<WorkSource>,
    /// The destination of the reply.
    pub reply_to: Option<ReplyRoute>,
    /// The approval request that it waits for, or its latest one, with the answer.
    pub approval: Option<ApprovalRequest>,
    /// `accepted`, `queued`, `running` or `paused`.
    pub status: RunStatus,
    /// The options of the message.
    pub options: RunOptions,
    /// The number of attempts.
    pub attempt: u32,
    /// The time of its acceptance.
    pub accepted_at: UnixMillis,
    /// The time of its first start.
    pub started_at: Option<UnixMillis>,
    /// The usage at the last checkpoint.
    pub usage: RunUsage,
    /// The cost at the last checkpoint, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// The loop's state at the last checkpoint; before the first one, the state of [`NewInput::state`].
    pub state: Option<Value>,
    /// The history that the client has sent with the message. The first start of the run appends it to the thread;
    /// empty after that.
    pub history: Vec<Message>,
    /// The run's messages so far, oldest first, with their positions: the user message and the messages of checkpoints,
    /// including those of run scope, without those that
    /// [`JournalStore::compact_turn`](super::JournalStore::compact_turn) has removed. Empty before the first start.
    pub messages: Vec<(u64, Arc<Message>)>,
    /// The files that the run has sent.
    pub files: Vec<SentFile>,
}

/// A message to commit.
#[derive(Clone, Debug)]
pub struct NewInput {
    /// The id of its run, chosen by the dispatcher.
    pub run_id: RunId,
    /// The key that recognises duplicates.
    pub key: Option<IdempotencyKey>,
    /// The channel of the message.
    pub channel: ChannelId,
    /// The kind of work of its run.
    pub work: Work,
    /// The sender.
    pub asker: Asker,
    /// The text.
    pub text: String,
    /// The platform's facts about the message. An edit finds the message by its `message_id`.
    pub provenance: Option<Arc<Provenance>>,
    /// The digest of the message as it was received, before hooks: it distinguishes a redelivery from another message
    /// under the same key. See [`Sent`](crate::sent::Sent). `None`: [`input_digest`](super::input_digest) of the text.
    pub digest: Option<String>,
    /// The destination of the reply.
    pub reply_to: Option<ReplyRoute>,
    /// The options of its run.
    pub options: RunOptions,
    /// The events to store after `run_accepted`.
    pub events: Vec<NewEvent>,
    /// The messages to append to the thread before the user message, for a fresh session with a history of its own.
    pub history: Vec<Message>,
    /// The initial state of the loop, kept until the first checkpoint; `None`: none.
    pub state: Option<Value>,
    /// The time.
    pub at: UnixMillis,
    /// Whether the run begins with this commit.
    pub start: bool,
    /// Whether the same commit hides the last visible turn, which this message replaces, however many turns are hidden.
    /// The message is refused with [`StoreError::NotFound`] if there is no such turn.
    pub replaces_turn: bool,
    /// Whether it comes from a person. Messages of a timer do not keep a conversation alive.
    pub spoken: bool,
    /// Its place among the mail of the session; `None`: the daemon is alone, and there is no mail.
    pub place: Option<MailPlace>,
}

/// The place of a message among the mail of its session, see [`MailStore`](super::MailStore).
#[derive(Clone, Debug, Default)]
pub struct MailPlace {
    /// The mail of the message itself, with the answer to it (JSON); `None`: the message did not come as mail, and all open
    /// mail is earlier.
    pub own: Option<(MailId, Value)>,
    /// Mail that the lane has handled already. Its answer may not be in the store yet.
    pub handled: Vec<MailId>,
}

/// The result of accepting a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acceptance {
    /// The message is committed.
    New,
    /// The key is known with the same digest: it is a duplicate.
    Known(KnownInput),
    /// The key is known with another digest.
    Conflict(KnownInput),
    /// This earlier mail of the session is open, oldest first. It must be handled before.
    Behind(Vec<MailId>),
    /// The mail of the message is answered already: the message was stopped, or accepted before.
    Answered,
    /// A command or an answer has the key.
    Used {
        /// See [`ActedOn::digest`](super::ActedOn::digest).
        digest: Option<String>,
        /// Its state.
        state: ClaimState,
    },
}

/// The new content of a queued message that its sender has edited.
#[derive(Clone, Debug)]
pub struct EditedMessage {
    /// Its run.
    pub run: RunId,
    /// The new text.
    pub text: String,
    /// The new facts of the platform.
    pub provenance: Option<Arc<Provenance>>,
    /// The [`input_digest`](super::input_digest) of the new text as it was received, before hooks.
    pub digest: String,
}

/// A stored message, for the comparison with an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentMessage {
    /// The message and its run.
    pub known: KnownInput,
    /// The digest of its last edit; `None`: it was not edited before its turn.
    pub edited: Option<String>,
}

impl SentMessage {
    /// Whether the message has this digest. Platforms also report an edit if only the link preview of a message has
    /// changed.
    pub fn says(&self, digest: &str) -> bool {
        *digest == self.known.digest || self.edited.as_deref() == Some(digest)
    }
}

/// A change of the visible part of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadEdit {
    /// Hides the last visible turn. At most 20 in a row.
    Undo,
    /// Shows the turn that was hidden last. Impossible once a new turn has begun.
    Redo,
    /// Hides all messages and the summary permanently.
    Clear,
    /// Completes this thread and opens another one.
    New,
    /// Completes this thread and makes an earlier one of the same session active again. Impossible if the session has no
    /// such thread, or if it is active already.
    Resume(ThreadId),
    /// Completes this thread and opens a copy of it: its summary, and the visible messages of ended turns after it.
    /// Impossible for a thread without any.
    Fork,
}

/// The result of an edit.
#[derive(Clone, Debug)]
pub enum EditOutcome {
    /// The edit is done; this is the active thread now.
    Done(ThreadSnapshot),
    /// There was nothing to undo, redo, resume or copy.
    Nothing,
}
