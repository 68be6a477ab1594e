//! The begin, the pause and the end of a run: the port [`RunStore`].

use std::sync::Arc;

use async_trait::async_trait;

use super::{Checkpoint, JoinedRun};
use crate::approval::Gate;
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

/// The transitions of a run, written by the owner of its lane.
#[async_trait]
pub trait RunStore: Send + Sync {
    /// Begins a queued run, or takes an unfinished one up again: status `running`, attempt raised by one unless it
    /// rested on a question. On the first
    /// attempt the user message (and the brought history) is appended to the thread. Thread state `Processing`; event `run_started`. Relaxed.
    async fn start_run(&self, lease: &Lease, run: RunId, at: UnixMillis) -> Result<(), StoreError>;

    /// Begins a queued run together with others of its session that wait: its user message is `text`, which holds all of
    /// theirs, and they end in the same commit. Otherwise as [`RunStore::start_run`], for a run that never began.
    /// Committed.
    async fn start_together(&self, lease: &Lease, together: Together) -> Result<(), StoreError>;

    /// Lays a running run to rest on a question: checkpoint, gate, question to deliver, status `paused`, thread state
    /// `AwaitingApproval` and event `approval_requested`, in one commit. Committed.
    async fn pause_run(&self, lease: &Lease, paused: PausedRun) -> Result<(), StoreError>;

    /// Ends runs in one commit: each exactly once. For each: remaining messages, end, usage, outbound row, event
    /// `run_ended`, thread state; questions that nobody has answered are withdrawn. A run that has ended already is left as it is.
    async fn finish_runs(&self, lease: &Lease, finished: Vec<FinishedRun>) -> Result<(), StoreError>;
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
