//! The begin, the pause and the end of a run: the port [`RunStore`].

use std::sync::Arc;

use async_trait::async_trait;

use super::{Checkpoint, JoinedRun};
use crate::approval::ApprovalRequest;
use crate::event::NewEvent;
use crate::ids::RunId;
use crate::lease::Lease;
use crate::message::Message;
use crate::outbound::Outbound;
use crate::provenance::Provenance;
use crate::run::RunUsage;
use crate::stop::RunEnd;
use crate::store_error::StoreError;
use crate::thread::ThreadState;
use crate::time::UnixMillis;

/// Begins, pauses and ends runs. The caller is the owner of the session's lane.
#[async_trait]
pub trait RunStore: Send + Sync {
    /// Begins a queued run, or resumes an unfinished one: status `running`, attempt raised by one unless it was paused.
    /// The first attempt appends the history and the user message to the thread. Thread state `Processing`; event
    /// `run_started`. Relaxed.
    async fn start_run(&self, lease: &Lease, run: RunId, at: UnixMillis) -> Result<(), StoreError>;

    /// Begins a queued run together with other queued runs of its session. Its user message is `text`, which contains
    /// all their messages, and they end in the same commit. Otherwise as [`RunStore::start_run`] for a run that has not
    /// begun. Committed.
    async fn start_together(&self, lease: &Lease, together: CollectedStart) -> Result<(), StoreError>;

    /// Pauses a running run for an approval request: checkpoint, gate, outbound message, status `paused`, thread state
    /// `AwaitingApproval` and event `approval_requested`, in one commit. Committed.
    async fn pause_run(&self, lease: &Lease, paused: PausedRun) -> Result<(), StoreError>;

    /// Takes the last attempt at a running run back, because a shutdown suspends it while it waits for a person. The
    /// first attempt stays counted, so that the run is known as begun; any other run is unchanged. Committed.
    async fn suspend_run(&self, lease: &Lease, run: RunId) -> Result<(), StoreError>;

    /// Ends runs in one commit, each exactly once. For each run: remaining messages, end, usage, outbox row, event
    /// `run_ended`, thread state; open approval requests are withdrawn. A run that has ended already is unchanged.
    async fn finish_runs(&self, lease: &Lease, finished: Vec<FinishedRun>) -> Result<(), StoreError>;
}

/// Queued messages that get one turn.
#[derive(Clone, Debug)]
pub struct CollectedStart {
    /// The run that answers all of them.
    pub run: RunId,
    /// The text of its user message.
    pub text: String,
    /// The platform's facts about that message.
    pub provenance: Option<Arc<Provenance>>,
    /// The runs of the other messages.
    pub joined: Vec<JoinedRun>,
    /// The time.
    pub at: UnixMillis,
}

/// A run that waits for an answer.
#[derive(Clone, Debug)]
pub struct PausedRun {
    /// Its progress. Its durability is ignored: it is committed with the rest.
    pub checkpoint: Checkpoint,
    /// The approval request.
    pub approval: ApprovalRequest,
    /// The message for the person; `None`: none is sent.
    pub outbound: Option<Outbound>,
    /// The callback of the pause; `None`: the client gave no address.
    pub callback: Option<Outbound>,
}

/// The end of a run.
#[derive(Clone, Debug)]
pub struct FinishedRun {
    /// The run.
    pub run: RunId,
    /// The messages to append to the thread, for a run that has begun.
    pub messages: Vec<Arc<Message>>,
    /// The stop reason and its evidence.
    pub end: RunEnd,
    /// The answer, or the line that explains why there is none.
    pub reply: Option<String>,
    /// The total usage.
    pub usage: RunUsage,
    /// The total cost, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// The model that answered its last step; `None`: none has answered since the last restart.
    pub model: Option<Arc<str>>,
    /// The time of the end.
    pub at: UnixMillis,
    /// The messages to deliver before the reply.
    pub said: Vec<Outbound>,
    /// The reply to deliver; `None`: none is sent.
    pub outbound: Option<Outbound>,
    /// The callback of its end; `None`: its client gave no address.
    pub callback: Option<Outbound>,
    /// The events to store before `run_ended`.
    pub events: Vec<NewEvent>,
    /// The new state of the thread; `None` keeps it.
    pub thread_state: Option<ThreadState>,
}
