//! The writes of a running run: the port [`JournalStore`].

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::event::NewEvent;
use crate::ids::{ApprovalId, RunId};
use crate::lease::Lease;
use crate::message::Message;
use crate::outbound::Outbound;
use crate::run::RunUsage;
use crate::stop::{RunEnd, StopReason};
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// Stores the progress of a running run, and compactions, under the lease of its lane.
#[async_trait]
pub trait JournalStore: Send + Sync {
    /// Appends messages, events and the loop's state to a running run.
    async fn checkpoint(&self, lease: &Lease, checkpoint: Checkpoint) -> Result<(), StoreError>;

    /// Replaces all but the newest `keep` visible messages of ended turns by a pinned summary in every later load. The
    /// messages of the running turn stay. The originals stay in the store. Committed.
    async fn compact(&self, lease: &Lease, keep: u32, summary: String, events: Vec<NewEvent>)
    -> Result<(), StoreError>;

    /// As [`JournalStore::compact`], for a cut that includes messages of the running turn. The summary replaces these
    /// in every later load of the thread and of the run. The originals stay in the store. Committed.
    async fn compact_turn(&self, lease: &Lease, cut: TurnCompaction) -> Result<(), StoreError>;
}

/// When a write returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// After a commit with full synchronisation: the write survives power loss.
    Committed,
    /// As soon as it is in the writer's queue. It is on disk with the next commit, at most 50 ms later. A crash may
    /// lose it, but no write before it.
    Relaxed,
}

/// Progress of a running run.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The run.
    pub run: RunId,
    /// The messages to append to the thread.
    pub messages: Vec<Arc<Message>>,
    /// The loop's state from which the run can resume; `None` keeps the stored one.
    pub state: Option<Value>,
    /// The usage so far.
    pub usage: RunUsage,
    /// The cost so far, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// The events to store.
    pub events: Vec<NewEvent>,
    /// The approvals that the starting calls use up, in the same commit, so that one approval allows one call.
    pub used: Vec<ApprovalId>,
    /// The runs whose messages are among the appended ones. They end in the same commit, so that one run answers each
    /// message.
    pub joined: Vec<JoinedRun>,
    /// The messages that the run sends while it continues, for the outbox, in the same commit.
    pub outbound: Vec<Outbound>,
    /// When the write returns.
    pub durability: Durability,
}

/// A run whose message has become part of another run. It ends with the reason `joined` and without a reply; its
/// evidence names the other run. A run that has ended already is unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedRun {
    /// The run that ends.
    pub run: RunId,
    /// `steer`, `collect` or `summarize`.
    pub how: &'static str,
    /// The time.
    pub at: UnixMillis,
}

/// The end of a run whose message has become part of another run.
pub fn joined_end(into: RunId, how: &str) -> RunEnd {
    RunEnd::of(StopReason::Joined).with("run", into.to_string()).with("mode", how)
}

/// A compaction during a running turn.
#[derive(Clone, Debug)]
pub struct TurnCompaction {
    /// The run of that turn.
    pub run: RunId,
    /// The messages of the run that are removed, by their index in
    /// [`PendingRun::messages`](super::PendingRun::messages), from 0. Unknown indices are ignored.
    pub left: Vec<u32>,
    /// The number of newest visible messages of ended turns that stay.
    pub keep: u32,
    /// The summary of all removed messages.
    pub summary: String,
    /// The events to store.
    pub events: Vec<NewEvent>,
}
