//! The ports of persistence. One implementation answers all of them over one database, so that what belongs together
//! commits together; they are separate traits so that each user sees only its own.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

use crate::approval::{Asker, Gate};
use crate::context::Conversation;
use crate::event::{Event, NewEvent, Seq};
use crate::idempotency::IdempotencyKey;
use crate::ids::{BootId, ChannelId, GateId, IdPrefix, OutboxId, RunId, SessionKey, ThreadId};
use crate::lease::Lease;
use crate::message::Message;
use crate::options::RunOptions;
use crate::outbound::Outbound;
use crate::principal::KnownPrincipal;
use crate::provenance::Provenance;
use crate::purpose::{Purpose, Spent};
use crate::route::ReplyRoute;
use crate::run::{RunRecord, RunUsage};
use crate::run_status::RunStatus;
use crate::session::{SessionFilter, SessionLifetime};
use crate::stop::{RunEnd, StopReason};
use crate::store_error::StoreError;
use crate::thread::ThreadState;
use crate::time::UnixMillis;
use crate::watch::{Accepted, RunWatch};
use crate::work::Work;

/// Whether a write is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Answered after a commit with full synchronisation: survives power loss.
    Committed,
    /// Answered once it is in the writer's order, on disk with the next commit and at most 50 ms later. A crash may lose
    /// it, never something that was written after it.
    Relaxed,
}

/// Sessions, threads, messages and runs, as their one owner writes them.
#[async_trait]
pub trait ThreadStore: Send + Sync {
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

    /// The run of that key, if it is known. For duplicates that meet a full lane.
    async fn find(&self, key: &IdempotencyKey) -> Result<Option<KnownInput>, StoreError>;

    /// Begins a queued run, or takes an unfinished one up again: status `running`, attempt raised by one unless it
    /// rested on a question. On the first
    /// attempt the user message (and the brought history) is appended to the thread. Thread state `Processing`; event `run_started`. Relaxed.
    async fn start_run(&self, lease: &Lease, run: RunId, at: UnixMillis) -> Result<(), StoreError>;

    /// Begins a queued run together with others of its session that wait: its user message is `text`, which holds all of
    /// theirs, and they end in the same commit. Otherwise as [`ThreadStore::start_run`], for a run that never began.
    /// Committed.
    async fn start_together(&self, lease: &Lease, together: Together) -> Result<(), StoreError>;

    /// Replaces the message of a queued run that never began: somebody has edited it. Committed.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]: the run has begun, has ended, or never was.
    async fn replace_message(&self, lease: &Lease, edited: EditedMessage) -> Result<(), StoreError>;

    /// The newest run of a session whose message has this id on its platform; `None`: there is none. For edits that come when
    /// the message does not wait any more.
    async fn sent_message(&self, session: &SessionKey, message_id: &str) -> Result<Option<SentMessage>, StoreError>;

    /// Appends messages, events and the loop's state to a running run.
    async fn checkpoint(&self, lease: &Lease, checkpoint: Checkpoint) -> Result<(), StoreError>;

    /// Lays a running run to rest on a question: checkpoint, gate, question to deliver, status `paused`, thread state
    /// `AwaitingApproval` and event `approval_requested`, in one commit. Committed.
    async fn pause_run(&self, lease: &Lease, paused: PausedRun) -> Result<(), StoreError>;

    /// Ends runs in one commit: each exactly once. For each: remaining messages, end, usage, outbound row, event
    /// `run_ended`, thread state; questions that nobody has answered are withdrawn. A run that has ended already is left as it is.
    async fn finish_runs(&self, lease: &Lease, finished: Vec<FinishedRun>) -> Result<(), StoreError>;

    /// Changes what the thread shows, for `/undo` and its like, and writes the event `thread_edited` where it did
    /// something. A turn at work is left as it is; without one, the thread is idle afterwards. Committed.
    async fn edit_thread(&self, lease: &Lease, edit: ThreadEdit, at: UnixMillis) -> Result<EditOutcome, StoreError>;

    /// Keeps what a session asks of all its runs. Committed.
    async fn set_options(&self, lease: &Lease, options: RunOptions) -> Result<(), StoreError>;

    /// Switches loop detection on or off for the session. Committed.
    async fn set_loop_detection(&self, lease: &Lease, on: bool) -> Result<(), StoreError>;

    /// Replaces all but the newest `keep` visible messages of ended turns by a pinned summary in every later load; the
    /// messages of the running turn stay. The originals stay in the store. Committed.
    async fn compact(&self, lease: &Lease, keep: u32, summary: String, events: Vec<NewEvent>)
    -> Result<(), StoreError>;

    /// As [`ThreadStore::compact`], for a cut that goes through a turn at work: the summary stands for messages of its run
    /// as well, and no later load of the thread has them, nor of the run. The originals stay in the store. Committed.
    async fn compact_turn(&self, lease: &Lease, cut: TurnCut) -> Result<(), StoreError>;

    /// Notes that a command, or an answer to a question, was acted on; once for each key, as it was first. The newest
    /// [`ACTED_ON_KEPT`] are kept. Committed.
    async fn note_acted_on(&self, acted_on: &ActedOn, at: UnixMillis) -> Result<(), StoreError>;

    /// What was acted on, oldest first: for recognising a second delivery after a restart.
    async fn acted_on(&self) -> Result<Vec<ActedOn>, StoreError>;

    /// Those of the newest [`RECENT_INPUTS`] messages that have a key, oldest first: for recognising a command under a key
    /// that a message has used before a restart.
    async fn recent_inputs(&self) -> Result<Vec<(IdempotencyKey, KnownInput)>, StoreError>;

    /// What queued runs were accepted with, as long as they have not begun; in no order. A run that is unknown is left out.
    async fn queued_inputs(&self, runs: &[RunId]) -> Result<Vec<QueuedInput>, StoreError>;

    /// Runs that have not ended, oldest first, without their texts: what a start counts and takes up again.
    async fn unfinished_runs(&self) -> Result<Vec<UnfinishedRun>, StoreError>;

    /// Sessions that have unfinished runs, oldest first.
    async fn unfinished_sessions(&self) -> Result<Vec<SessionKey>, StoreError> {
        let mut seen = std::collections::HashSet::new();
        let runs = self.unfinished_runs().await?;
        Ok(runs.into_iter().map(|run| run.session).filter(|session| seen.insert(session.clone())).collect())
    }
}

/// What a queued run was accepted with.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedInput {
    /// The run.
    pub run_id: RunId,
    /// The text of its message.
    pub text: String,
    /// What is known of the message besides.
    pub provenance: Option<Arc<Provenance>>,
    /// The history that the message brought along.
    pub history: Vec<Message>,
}

impl QueuedInput {
    /// The message.
    pub fn message(&self) -> Message {
        Message::sent(&self.text, self.provenance.clone())
    }
}

/// A run that has not ended, for counting it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedRun {
    /// The run.
    pub run_id: RunId,
    /// Its session.
    pub session: SessionKey,
    /// The channel that its message came through.
    pub channel: ChannelId,
    /// Who sent the message, by the id within the channel.
    pub principal: String,
    /// What it is.
    pub work: Work,
    /// Bytes of the message's text, and of the history that came with it as long as the run has not begun.
    pub bytes: u64,
    /// Whether it has begun: it was at work, or rests on a question.
    pub begun: bool,
}

/// Commands and answers whose keys are kept. 1024: days of them on a busy bot, and platforms deliver again within a day.
pub const ACTED_ON_KEPT: usize = 1024;

/// Messages whose keys commands are compared with at once, without asking the store. 1024: as many as commands.
pub const RECENT_INPUTS: usize = 1024;

/// A command, or an answer to a question, that was acted on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActedOn {
    /// What makes a second delivery recognisable.
    pub key: IdempotencyKey,
    /// What tells a second delivery from something else under the same key, see [`Sent`](crate::sent::Sent). `None` for a
    /// secret, of which no digest is kept.
    pub digest: Option<String>,
    /// Whether it was refused for good: sent again under its key, it is not tried again.
    pub refused: bool,
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
    /// added, those of run scope included, without those that [`ThreadStore::compact_turn`] took away. Empty before its
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

/// A message that was committed before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownInput {
    /// Its run.
    pub run_id: RunId,
    /// Its session.
    pub session: SessionKey,
    /// When it was committed.
    pub accepted_at: UnixMillis,
    /// What tells a duplicate from a conflict, see [`Sent`](crate::sent::Sent).
    pub digest: String,
}

impl KnownInput {
    /// The acknowledgement of its second delivery. `watch` where its run is alive.
    pub fn again(self, watch: Option<RunWatch>) -> Accepted {
        let Self { run_id, session, accepted_at, digest: _ } = self;
        Accepted { run_id, session, accepted_at, duplicate: true, watch }
    }
}

/// The digest of a message that is a text and nothing else: blake3 of the text, in hex.
pub fn input_digest(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// Progress of a running run.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The run.
    pub run: RunId,
    /// Messages to append to the thread.
    pub messages: Vec<Arc<Message>>,
    /// The loop's state from which the run can go on; `None` leaves the stored one.
    pub state: Option<Value>,
    /// Totals so far.
    pub usage: RunUsage,
    /// Cost so far, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// Facts to store.
    pub events: Vec<NewEvent>,
    /// Approvals that are used up by what begins now: in the same commit, so that one allows one call.
    pub used: Vec<GateId>,
    /// Runs whose messages are among those that are appended: they end in the same commit, so that each message is
    /// answered by one run.
    pub joined: Vec<JoinedRun>,
    /// Messages to deliver, in the same commit: what the run says while it goes on.
    pub outbound: Vec<Outbound>,
    /// Whether it is waited for.
    pub durability: Durability,
}

/// A run whose message has become part of another one: it ends with the reason `joined`, names that one in its evidence, and
/// says nothing itself. Left as it is where it has ended already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedRun {
    /// The run that ends.
    pub run: RunId,
    /// `steer`, `collect` or `summarize`.
    pub how: &'static str,
    /// When.
    pub at: UnixMillis,
}

/// How a run ends whose message has become part of another one.
pub fn joined_end(into: RunId, how: &str) -> RunEnd {
    RunEnd::of(StopReason::Joined).with("run", into.to_string()).with("mode", how)
}

/// Messages that get one turn.
#[derive(Clone, Debug)]
pub struct Together {
    /// The run that answers all of them.
    pub run: RunId,
    /// The user message that it begins with.
    pub text: String,
    /// What is known of that message.
    pub provenance: Option<Arc<Provenance>>,
    /// The runs of the others.
    pub joined: Vec<JoinedRun>,
    /// The date.
    pub at: UnixMillis,
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

/// A run that rests on a question.
#[derive(Clone, Debug)]
pub struct PausedRun {
    /// How far it has come. Written with the rest, whatever its durability says.
    pub checkpoint: Checkpoint,
    /// The question.
    pub gate: Gate,
    /// What is delivered to the person; `None` where nobody is told.
    pub outbound: Option<Outbound>,
}

/// The end of a run.
#[derive(Clone, Debug)]
pub struct FinishedRun {
    /// The run.
    pub run: RunId,
    /// Messages to append to the thread, for a run that had begun.
    pub messages: Vec<Arc<Message>>,
    /// How it ended.
    pub end: RunEnd,
    /// The answer, or the line that says why there is none.
    pub reply: Option<String>,
    /// What it used in all.
    pub usage: RunUsage,
    /// What it cost in all, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// When it ended.
    pub at: UnixMillis,
    /// Messages to deliver before the reply.
    pub said: Vec<Outbound>,
    /// The reply to deliver; `None` where nobody is told.
    pub outbound: Option<Outbound>,
    /// Facts to store before `run_ended`.
    pub events: Vec<NewEvent>,
    /// The thread's state from here on; `None` leaves it.
    pub thread_state: Option<ThreadState>,
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

/// What leaves the context while a turn is at work.
#[derive(Clone, Debug)]
pub struct TurnCut {
    /// The run of that turn.
    pub run: RunId,
    /// Its messages that leave, by their number in [`PendingRun::messages`], from 0. Others than there are are passed over.
    pub left: Vec<u32>,
    /// How many of the newest visible messages of ended turns stay.
    pub keep: u32,
    /// The account of all that has left.
    pub summary: String,
    /// Facts to store.
    pub events: Vec<NewEvent>,
}

/// Reads runs, sessions and history, for the API and the command line. Never blocks a writer.
#[async_trait]
pub trait RunReader: Send + Sync {
    /// The run of that id.
    async fn run(&self, id: RunId) -> Result<Option<RunRecord>, StoreError>;
    /// Runs, newest first.
    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunRecord>, StoreError>;
    /// Sessions, most recently used first.
    async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionSummary>, StoreError>;
    /// The session of that key. As it stands this looks through the whole list; a store with an index answers directly.
    async fn session(&self, key: &SessionKey) -> Result<Option<SessionSummary>, StoreError> {
        Ok(self.sessions(SessionFilter::all(u32::MAX)).await?.into_iter().find(|summary| summary.session == *key))
    }
    /// What people and model said in a session's active thread, oldest first, after the position `after`: user and
    /// assistant texts, without run-scope messages and tool traffic.
    async fn history(&self, session: &SessionKey, after: u64, limit: u32) -> Result<Vec<HistoryEntry>, StoreError>;
    /// The conversation of a session as it stands; `None`: there is no such session. As it stands this knows texts only; a
    /// store that has the rest answers with everything.
    async fn conversation(&self, session: &SessionKey) -> Result<Option<Conversation>, StoreError> {
        if self.session(session).await?.is_none() {
            return Ok(None);
        }
        let said = self.history(session, 0, u32::MAX).await?;
        let message = |line: HistoryEntry| match line.role.as_str() {
            "assistant" => Arc::new(Message::assistant(line.text)),
            _ => Arc::new(Message::user(line.text)),
        };
        Ok(Some(Conversation { messages: said.into_iter().map(message).collect(), ..Conversation::default() }))
    }
    /// The newest `limit` lines of a session's history, oldest first. As it stands this looks through all of it, page by
    /// page; a store with an index answers directly.
    async fn recent_history(&self, session: &SessionKey, limit: u32) -> Result<Vec<HistoryEntry>, StoreError> {
        let mut newest = std::collections::VecDeque::new();
        let mut after = 0;
        loop {
            let page = self.history(session, after, 256).await?;
            let Some(last) = page.last() else { return Ok(newest.into()) };
            after = last.id;
            newest.extend(page);
            let surplus = newest.len().saturating_sub(limit as usize);
            newest.drain(..surplus);
        }
    }
    /// All messages of a run in their order, those for the run alone and tool traffic included; none that were cleared.
    /// Up to the newest checkpoint while the run goes on.
    async fn run_messages(&self, id: RunId) -> Result<Vec<Arc<Message>>, StoreError>;
    /// Whether people are there: in the conversation that answers go to, or in any where none is named. What was said before
    /// `since` is not looked for. As it stands this knows of nobody; a store that keeps what was said answers.
    async fn presence(&self, _place: Option<&ReplyRoute>, _since: UnixMillis) -> Result<Presence, StoreError> {
        Ok(Presence::default())
    }
    /// The principals that have sent a message, the most recently seen first. Background work is no principal. The default knows
    /// of none.
    async fn principals(&self, _limit: u32) -> Result<Vec<KnownPrincipal>, StoreError> {
        Ok(Vec::new())
    }
    /// Whether the store can take a write now; for readiness.
    async fn ping(&self) -> Result<(), StoreError>;
}

/// Whether people are in a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// Whether somebody has spoken, timers and programs of the daemon's own aside.
    pub spoken: bool,
    /// Whether a message is being answered there, or waits for that. One that rests on a question to a person does not count.
    pub at_work: bool,
}

/// Which runs.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// Whose id begins so.
    pub id: Option<IdPrefix>,
    /// Of this session only.
    pub session: Option<SessionKey>,
    /// With this status only.
    pub status: Option<RunStatus>,
    /// At most so many; 0 means 50.
    pub limit: u32,
}

/// A session in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionSummary {
    /// Its key.
    pub session: SessionKey,
    /// The state of its active thread.
    pub state: ThreadState,
    /// Runs that have not ended.
    pub open_runs: u32,
    /// When it was last used.
    pub last_active_at: UnixMillis,
    /// The first words that a person said in its active thread: one line, at most [`TITLE_MAX_CHARS`] characters.
    pub title: Option<String>,
    /// How long it is kept; a lasting one does not say so on the wire.
    #[serde(skip_serializing_if = "SessionLifetime::is_lasting")]
    pub lifetime: SessionLifetime,
}

/// Longest title of a session, in characters.
pub const TITLE_MAX_CHARS: usize = 80;

/// A line of history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HistoryEntry {
    /// Its position; what `after` takes.
    pub id: u64,
    /// `user`, `assistant`, or `system` for a notice.
    pub role: String,
    /// The text.
    pub text: String,
    /// The run it belongs to.
    pub run_id: Option<RunId>,
    /// When it was stored.
    pub at: UnixMillis,
}

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

/// Replies that are committed and not yet delivered.
#[async_trait]
pub trait Outbox: Send + Sync {
    /// Commits a message that is no run's reply.
    async fn enqueue(&self, message: Outbound) -> Result<(), StoreError>;
    /// The oldest undelivered row of each conversation that is not in `busy`, oldest first; rows not due yet are left out.
    async fn due(&self, now: UnixMillis, busy: &[ReplyRoute], limit: u32) -> Result<Vec<OutboxRow>, StoreError>;
    /// When the next row that is not due yet becomes due.
    async fn next_due(&self) -> Result<Option<UnixMillis>, StoreError>;
    /// Records an attempt's beginning or its end. Committed for [`OutboxState::Sending`] before the platform is asked.
    async fn mark(&self, id: OutboxId, state: OutboxState) -> Result<(), StoreError>;
    /// Turns rows found in `sending` at the start into `ambiguous` and returns them: a dead daemon was in the middle.
    async fn settle_interrupted(&self) -> Result<Vec<OutboxRow>, StoreError>;
    /// Changes whenever a row is committed.
    fn committed(&self) -> watch::Receiver<u64>;
}

/// A row of the outbox.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxRow {
    /// The message.
    pub message: Outbound,
    /// Attempts so far.
    pub attempts: u32,
}

/// Where a delivery stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboxState {
    /// Being sent: raises the attempts by one.
    Sending,
    /// Taken by the platform.
    Sent,
    /// To be tried again at this date; so many pieces have been taken.
    Waiting {
        /// Not before.
        until: UnixMillis,
        /// Pieces taken.
        pieces_sent: u32,
    },
    /// Perhaps taken, and not tried again.
    Ambiguous,
    /// Given up.
    Failed,
}

/// Notes that the model keeps for a session.
#[async_trait]
pub trait NoteStore: Send + Sync {
    /// Keeps a note under a key, replacing an earlier one. Committed.
    async fn remember(&self, session: &SessionKey, key: &str, text: &str, at: UnixMillis) -> Result<(), StoreError>;
    /// Notes whose key or text contains any word of the query, without case, best and newest first; all for an empty query.
    async fn recall(&self, session: &SessionKey, query: &str, limit: u32) -> Result<Vec<Note>, StoreError>;
}

/// A note.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Note {
    /// Its key.
    pub key: String,
    /// Its text.
    pub text: String,
    /// When it was kept.
    pub at: UnixMillis,
}

/// Money: reserved before each call, settled after, counted by UTC day.
#[async_trait]
pub trait SpendLedger: Send + Sync {
    /// What a day has cost, by what it went for: settled amounts plus reservations that nobody settled.
    async fn spent(&self, utc_day: i64) -> Result<Spent, StoreError>;
    /// What all runs of a session have cost, by the totals they had stored last, in millionths of a US dollar.
    async fn session_spent(&self, session: &SessionKey) -> Result<u64, StoreError>;
    /// Reserves an amount before a model call and returns the number of the reservation. The store charges it to the principal
    /// that sent the run's message; for the run of a job or a routine, to the principal that created the job or the routine.
    /// Committed, so that a crash during the call counts it as spent.
    async fn reserve(&self, reservation: NewReservation) -> Result<u64, StoreError>;
    /// Replaces a reservation, by the number that [`SpendLedger::reserve`] returned, by the cost of the call. `model`: the
    /// model that answered; `None`: the model of the reservation. Relaxed.
    async fn settle(&self, reservation: u64, model: Option<&str>, micro_usd: u64) -> Result<(), StoreError>;
}

/// Money to reserve for one model call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewReservation {
    /// The run at the top of the call's tree of runs.
    pub run: RunId,
    /// The purpose of the run, whose budget it uses.
    pub purpose: Purpose,
    /// The requested model.
    pub model: String,
    /// The UTC day, counted from 1970-01-01.
    pub utc_day: i64,
    /// The most that the call can cost, in millionths of a US dollar.
    pub micro_usd: u64,
}
