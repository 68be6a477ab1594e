//! What comes in: messages and control, who sends them, and where their answer goes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{broadcast, oneshot, watch};

use crate::approval::Decision;
use crate::archive::Removed;
use crate::context::ContextReport;
use crate::declared::DeclaredOutput;
use crate::ids::{ChannelId, GateId, RunId, SessionKey};
use crate::job::{JobNumbers, JobRecord, JobRequest};
use crate::model::{Delta, ModelInfo};
use crate::options::RunOptions;
use crate::provenance::Provenance;
use crate::purpose::{Purpose, Spent};
use crate::routine::{RoutineAnswer, RoutineRequest};
use crate::routine_store::RoutineNumbers;
use crate::run::RunRecord;
use crate::session::SessionLifetime;
use crate::time::UnixMillis;
use crate::tool_health::{ToolHealth, ToolRequest};

/// One message in, in our own form. Whoever makes it has authenticated the sender and bounded the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Inbound {
    /// The channel it came through.
    pub channel: ChannelId,
    /// The session it belongs to.
    pub session: SessionKey,
    /// How long its session is kept, where this message creates the session.
    pub lifetime: SessionLifetime,
    /// Who sends it.
    pub principal: Principal,
    /// What makes a second delivery of the same message recognisable; `None`: every delivery is a message of its own.
    pub key: Option<IdempotencyKey>,
    /// Where the reply goes. `None`: nobody is told; whoever asked reads the run.
    pub reply_to: Option<ReplyRoute>,
    /// What it says.
    pub body: Body,
    /// Messages that came before, for a fresh session that brings its own history; empty otherwise.
    pub history: Vec<HistoryLine>,
    /// Whether somebody wants the fragments of the answer from the first one on.
    pub want_deltas: bool,
    /// Outputs that the answer must have, by name and type; empty: a text is the answer.
    pub outputs: Vec<DeclaredOutput>,
    /// Whether another program than the sender's own client relayed it, such as an inline bot: its words are not the sender's
    /// own, so its run asks nobody and it decides nothing. Whether several people read along, [`Provenance::audience`] says.
    pub relayed: bool,
    /// Who wrote it and what came with it, as its platform says; `None`: a text alone.
    pub provenance: Option<Arc<Provenance>>,
    /// What it asks of its run.
    pub options: RunOptions,
}

/// A line of history that a client brings along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryLine {
    /// `system`, `user` or `assistant`.
    pub role: HistoryRole,
    /// The text.
    pub text: String,
}

/// Who said a line of brought history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryRole {
    /// Added to our own instructions.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// What an inbound message says.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Text as typed; the agent parses commands out of it.
    Text(String),
    /// The new text of a message that was sent before, which [`Provenance::message_id`] names. It takes the place of that
    /// message where its turn has not begun, and is refused where it has. Never a command, nor an answer to a question.
    Edit(String),
    /// A structured request of a program. Acted on at once, never queued.
    Control(Control),
}

/// A request to the dispatcher itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Control {
    /// Stop what the target names. Answered with [`Ack::Stopped`].
    Stop(StopTarget),
    /// Follow a run. Answered with [`Ack::Watch`].
    Watch(RunId),
    /// What is going on. Answered with [`Ack::Status`].
    Status,
    /// What the model of a session would be told now, with the texts themselves or without. Answered with [`Ack::Context`].
    Context {
        /// The session.
        session: SessionKey,
        /// Whether the texts are wanted too.
        full: bool,
    },
    /// Drain and end; operators only. Answered with [`Ack::Command`].
    Shutdown,
    /// Delete a session with everything of it, unless a message of it is still being answered; operators only. Answered with
    /// [`Ack::Removed`].
    DeleteSession(SessionKey),
    /// Read the conversation of a session anew, into which the store has put something. Of the agent's own parts; not answered.
    Refresh(SessionKey),
    /// Make or change a job. Answered with [`Ack::Job`].
    Job(JobRequest),
    /// Make, change or fire a routine. Answered with [`Ack::Routine`].
    Routine(Box<RoutineRequest>),
    /// List tools, or switch one on or off. Answered with [`Ack::Tools`]: all of them, or the one.
    Tools(ToolRequest),
    /// Answer a question about a tool call. Answered with [`Ack::Command`].
    Decide {
        /// The question.
        gate: GateId,
        /// The answer.
        decision: Decision,
    },
}

impl Inbound {
    /// Whether it was forwarded: somebody else's words, which command and decide nothing.
    pub fn is_forwarded(&self) -> bool {
        self.provenance.as_ref().is_some_and(|provenance| provenance.is_forwarded())
    }
}

/// What to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopTarget {
    /// One run, for this reason or for the default one of the principal.
    Run(RunId),
    /// One run whose only reader has gone away (`client_gone`).
    RunOfGoneClient(RunId),
    /// The running turn and the queue of a session.
    Session(SessionKey),
    /// Everything; operators only.
    All,
}

/// Who is acting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Stable within its channel: a user id, a token's name. For the log and for "what is theirs".
    pub id: Arc<str>,
    /// What they may do.
    pub role: Role,
}

/// What a principal may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Talk, decide what is theirs, stop what is theirs: everything within the session of the message.
    User,
    /// Like a user, and may also watch and stop any session: the holder of the API token.
    Client,
    /// Everything, shutdown included.
    Operator,
}

impl Principal {
    /// An operator of that id.
    pub fn operator(id: impl AsRef<str>) -> Self {
        Self { id: id.as_ref().into(), role: Role::Operator }
    }

    /// Whether this is an operator.
    pub fn is_operator(&self) -> bool {
        self.role == Role::Operator
    }
}

/// Recognises a second delivery of the same message: `(channel, account, message id)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdempotencyKey {
    /// The channel.
    pub channel: ChannelId,
    /// Within which the message id is unique: the bot, or for HTTP the session.
    pub account: Arc<str>,
    /// The platform's or client's own id.
    pub message_id: Arc<str>,
}

/// Where a reply goes. Stored with the run, so that a restart can still answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReplyRoute {
    /// The channel.
    pub channel: ChannelId,
    /// The conversation within it; deliveries to one conversation keep their order.
    pub conversation: Arc<str>,
    /// The message that is answered, as the platform names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<Arc<str>>,
}

/// A file that comes with a message. Not accepted yet; the field exists so that it is refused with a clear error.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Attachment {}

/// An inbound message and where its acknowledgement goes.
#[derive(Debug)]
pub struct Envelope {
    /// The message.
    pub inbound: Inbound,
    /// The acknowledgement's way back.
    pub ack: AckSender,
}

/// Takes the one acknowledgement of a message: what its channel's own protocol needs (an HTTP status, a Telegram 200).
///
/// The person is told by the agent: where [`Inbound::reply_to`] is set, answers to commands and refusals are delivered
/// to that conversation as well, except refusals after which the channel offers the message again (busy, store,
/// shutting down). Dropped unanswered, the other end learns that nothing was accepted.
#[derive(Debug)]
pub struct AckSender {
    to: Option<oneshot::Sender<Ack>>,
    /// Second deliveries wait for it too.
    shared: Option<Giver>,
}

impl AckSender {
    /// A sender and the end that waits for it.
    pub fn channel() -> (Self, oneshot::Receiver<Ack>) {
        let (tx, rx) = oneshot::channel();
        (Self { to: Some(tx), shared: None }, rx)
    }

    /// For channels that need no acknowledgement.
    pub fn nobody() -> Self {
        Self { to: None, shared: None }
    }

    /// Lets second deliveries wait for the same answer.
    pub fn shared(self) -> (Self, SharedAck) {
        let shared = SharedAck(Arc::new(Mutex::new(AckState::Waited(Vec::new()))));
        (Self { shared: Some(Giver(shared.clone())), ..self }, shared)
    }

    /// Answers. Whoever waited may have gone away; that changes nothing here.
    pub fn send(self, ack: Ack) {
        if let Some(giver) = self.shared {
            giver.0.settle(Some(&ack));
        }
        if let Some(tx) = self.to {
            let _ = tx.send(ack); // the waiter gave up: its message is accepted all the same
        }
    }
}

/// The acknowledgement of a command or an answer, which second deliveries may wait for.
#[derive(Clone, Debug)]
pub struct SharedAck(Arc<Mutex<AckState>>);

#[derive(Debug)]
enum AckState {
    /// It is not given yet; these wait for it too.
    Waited(Vec<AckSender>),
    /// It was given, or never will be.
    Settled { refused: bool },
}

impl SharedAck {
    /// Has a second delivery wait for the same answer. Gives its sender back where that was given already, and with it
    /// whether the answer was a refusal; one that was dropped unanswered counts as none.
    pub fn join(&self, ack: AckSender) -> Option<(AckSender, bool)> {
        match &mut *self.lock() {
            AckState::Waited(waiters) => {
                waiters.push(ack);
                None
            }
            AckState::Settled { refused } => Some((ack, *refused)),
        }
    }

    /// Whether it is a refusal; not as long as it is not given.
    pub fn is_refused(&self) -> bool {
        matches!(*self.lock(), AckState::Settled { refused: true })
    }

    /// `None`: there will be none, and whoever waits learns that. Only the first call counts.
    fn settle(&self, ack: Option<&Ack>) {
        let refused = match ack {
            Some(Ack::Refused(_)) => true,
            Some(Ack::Command(reply)) => reply.refused,
            _ => false,
        };
        let mut state = self.lock();
        let AckState::Waited(waiters) = &mut *state else { return };
        let waiters = std::mem::take(waiters);
        *state = AckState::Settled { refused };
        drop(state); // a waiter's own end is no business of the lock
        for waiter in waiters {
            if let Some(again) = ack.and_then(Ack::again) {
                waiter.send(again);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, AckState> {
        // Nothing of others runs under it: what a panic leaves behind is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Settles what is dropped unanswered: whoever waits is not left waiting.
#[derive(Debug)]
struct Giver(SharedAck);

impl Drop for Giver {
    fn drop(&mut self) {
        self.0.settle(None);
    }
}

/// The answer to an inbound message.
#[derive(Debug)]
pub enum Ack {
    /// It is committed.
    Accepted(Accepted),
    /// It was a command, and this is the answer.
    Command(CommandReply),
    /// What a stop has done.
    Stopped(StopReport),
    /// What was deleted.
    Removed(Removed),
    /// The run, while it is alive; `None`: it is not (the store knows more).
    Watch(Option<RunWatch>),
    /// What is going on.
    Status(Box<StatusReport>),
    /// What the model would be told.
    Context(Box<ContextReport>),
    /// A job, as it stands now.
    Job(Box<JobRecord>),
    /// What became of a request about routines.
    Routine(RoutineAnswer),
    /// Tools, and how they get on.
    Tools(Vec<ToolHealth>),
    /// It is not accepted.
    Refused(Refusal),
}

impl Ack {
    /// The same for a second delivery of a command or an answer; `None` for what those are never answered with.
    fn again(&self) -> Option<Self> {
        match self {
            Self::Command(reply) => Some(Self::Command(reply.clone())),
            Self::Refused(refusal) => Some(Self::Refused(refusal.clone())),
            Self::Accepted(Accepted { run_id, session, accepted_at, .. }) => Some(Self::Accepted(Accepted {
                run_id: *run_id,
                session: session.clone(),
                accepted_at: *accepted_at,
                duplicate: true,
                watch: None,
            })),
            _ => None,
        }
    }
}

/// A committed message.
#[derive(Debug)]
pub struct Accepted {
    /// Its run.
    pub run_id: RunId,
    /// Its session.
    pub session: SessionKey,
    /// When it was committed: the first time, for a duplicate.
    pub accepted_at: UnixMillis,
    /// Whether it had been committed before.
    pub duplicate: bool,
    /// The run, for whoever waits. `None` for a duplicate of a run that is no longer alive: read the store.
    pub watch: Option<RunWatch>,
}

/// Follows a living run.
#[derive(Debug)]
pub struct RunWatch {
    /// The run.
    pub run_id: RunId,
    /// Filled when the run has ended and its end is committed, or while it rests on a question (the record says
    /// `paused`); emptied when it goes on. A closed channel without a value: read the store.
    pub finished: watch::Receiver<Option<Arc<RunRecord>>>,
    /// The fragments from now on; from the first one when the message asked for them.
    pub deltas: Option<broadcast::Receiver<Delta>>,
    /// What was said before those fragments, in the step that the run is at; empty where none were asked for.
    pub so_far: Partial,
}

/// An answer that is on its way: what the model has said so far in one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partial {
    /// The step, from 1; 0 before the first.
    pub step: u32,
    /// The text.
    pub text: String,
    /// The reasoning.
    pub reasoning: String,
}

impl Partial {
    /// Begins the step, with nothing said.
    pub fn begin(&mut self, step: u32) {
        self.step = step;
        self.text.clear();
        self.reasoning.clear();
    }
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CommandReply {
    /// The command as recognised, with its slash.
    pub command: String,
    /// Markdown for the person.
    pub reply: String,
    /// The run that goes on because of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumes: Option<RunId>,
    /// Whether it did not do what it is for: nothing has changed, and the reply says why.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
}

/// What a stop has done.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StopReport {
    /// Runs whose status is `stopped` now.
    pub stopped: Vec<RunId>,
    /// What has not ended yet.
    pub still_running: Vec<StillRunning>,
}

/// Something of a stopped run that is still alive.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StillRunning {
    /// The run.
    pub run_id: RunId,
    /// The process, if it is one.
    pub pid: Option<u32>,
    /// What it is.
    pub what: String,
}

/// Why a message was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The queue of the session, or of whoever sends, is full.
    #[error("busy: {what}; try again in {} ms", retry_after.as_millis())]
    Busy {
        /// What is full.
        what: String,
        /// When to try again.
        retry_after: Duration,
    },
    /// Too much waits in the whole daemon, whoever sent it.
    #[error("overloaded: {what}; try again in {} ms", retry_after.as_millis())]
    Overloaded {
        /// What is full.
        what: String,
        /// When to try again.
        retry_after: Duration,
    },
    /// The same idempotency key came with another text, other options or other outputs.
    #[error(
        "the idempotency key was used for another message, or for this one with other options (run {run_id}); send this \
         under a new key"
    )]
    Conflict {
        /// The run of the first message.
        run_id: RunId,
    },
    /// The same idempotency key came with something else than the command, or the answer to a question, that was acted on
    /// under it.
    #[error("the idempotency key was used for another command, or an answer to a question; send this under a new key")]
    ConflictWithCommand,
    /// Only an operator, or the owner, may.
    #[error("{0}")]
    Forbidden(String),
    /// The daemon drains.
    #[error("Belay is shutting down")]
    ShuttingDown,
    /// The message cannot be used.
    #[error("{0}")]
    Invalid(String),
    /// What was named does not exist.
    #[error("{0}")]
    Unknown(String),
    /// It was decided before; the words say how.
    #[error("{0}")]
    Decided(String),
    /// The store did not take it: nothing was accepted.
    #[error("the message could not be stored: {0}")]
    Store(String),
}

/// What is going on, for `/status`, `belay status` and the API.
#[derive(Clone, Debug, Serialize)]
pub struct StatusReport {
    /// The program's version.
    pub version: String,
    /// This start of the daemon.
    pub boot_id: crate::ids::BootId,
    /// When it started.
    pub started_at: UnixMillis,
    /// Whether it drains.
    pub draining: bool,
    /// The model in use, and whether it is the rehearsal stand-in.
    pub model: ModelInfo,
    /// Sessions with a lane.
    pub sessions_awake: usize,
    /// Runs at work.
    pub running: Vec<LiveRun>,
    /// Runs that wait for their turn.
    pub queued: usize,
    /// Runs that rest on a question to a person.
    pub paused: usize,
    /// Channels that take messages.
    pub channels: Vec<ChannelId>,
    /// Money spent today, UTC, in millionths of a US dollar.
    pub spent_today_micro_usd: u64,
    /// The same by what it went for.
    pub spent_today_for: Spent,
    /// The day's limit; `null`: none.
    pub limit_today_micro_usd: Option<u64>,
    /// The day's limits of single purposes, in millionths of a US dollar.
    pub limit_today_for: BTreeMap<Purpose, u64>,
    /// What the model fails with, if its last call failed.
    pub model_trouble: Option<ModelTrouble>,
    /// The models and keys that may be asked, in the order of preference; empty where there is only one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<CandidateStatus>,
    /// Tools, and MCP servers, that fail again and again or are switched off. Without descriptions and evidence, which the
    /// list of tools has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolHealth>,
    /// Jobs that are not over; `null`: the store does not answer.
    pub jobs: Option<JobsStatus>,
    /// Routines; `null`: the store does not answer.
    pub routines: Option<RoutineNumbers>,
}

/// Jobs that are not over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JobsStatus {
    /// How many.
    #[serde(flatten)]
    pub numbers: JobNumbers,
    /// How many may be at work at the same time; those that are stuck keep their places.
    pub places: u32,
}

/// How one of several models, or of the keys to one, stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CandidateStatus {
    /// Its name.
    pub name: String,
    /// Until when it is not asked; `null`: it is.
    pub cooling_until: Option<UnixMillis>,
    /// What it failed with: `rate_limited`, `auth`, … `null`: it is asked.
    pub why: Option<String>,
}

/// A model that does not answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelTrouble {
    /// Since when.
    pub since: UnixMillis,
    /// The kind of its last failure: `rate_limited`, `network`, …
    pub kind: String,
    /// Requests of the last call.
    pub requests: u32,
}

/// A run at work.
#[derive(Clone, Debug, Serialize)]
pub struct LiveRun {
    /// The run.
    pub run_id: RunId,
    /// Its session.
    pub session: SessionKey,
    /// Milliseconds since it was taken up.
    pub for_ms: u64,
}

impl fmt::Display for StopReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.stopped.len(), self.still_running.len()) {
            (0, 0) => write!(f, "Nothing is running."),
            (n, 0) => write!(f, "Stopped {n} run{}.", if n == 1 { "" } else { "s" }),
            (n, m) => write!(f, "Stopped {n} run{}; {m} still ending.", if n == 1 { "" } else { "s" }),
        }
    }
}
