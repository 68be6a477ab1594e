//! The writes of a running run: the port [`JournalStore`].

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::event::NewEvent;
use crate::ids::{GateId, RunId};
use crate::lease::Lease;
use crate::message::Message;
use crate::outbound::Outbound;
use crate::run::RunUsage;
use crate::stop::{RunEnd, StopReason};
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// Progress of a running run, and compaction, written under the lease of its lane.
#[async_trait]
pub trait JournalStore: Send + Sync {
    /// Appends messages, events and the loop's state to a running run.
    async fn checkpoint(&self, lease: &Lease, checkpoint: Checkpoint) -> Result<(), StoreError>;

    /// Replaces all but the newest `keep` visible messages of ended turns by a pinned summary in every later load; the
    /// messages of the running turn stay. The originals stay in the store. Committed.
    async fn compact(&self, lease: &Lease, keep: u32, summary: String, events: Vec<NewEvent>)
    -> Result<(), StoreError>;

    /// As [`JournalStore::compact`], for a cut that goes through a turn at work: the summary stands for messages of its run
    /// as well, and no later load of the thread has them, nor of the run. The originals stay in the store. Committed.
    async fn compact_turn(&self, lease: &Lease, cut: TurnCut) -> Result<(), StoreError>;
}

/// Whether a write is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Answered after a commit with full synchronisation: survives power loss.
    Committed,
    /// Answered once it is in the writer's order, on disk with the next commit and at most 50 ms later. A crash may lose
    /// it, never something that was written after it.
    Relaxed,
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
