//! The port through which a run that another run has started asks a person.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{ApprovalRequest, AskedIn, Lease, RunId, StoreError, ToolCall};
use tokio_util::sync::CancellationToken;

use crate::approvals::Wanted;
use crate::live::LiveRun;
use crate::request::RunRequest;

/// A call about which a person is asked.
pub struct ChildCall<'a> {
    /// The lease of the lane that the run tree belongs to.
    pub lease: &'a Lease,
    /// The request of the run tree.
    pub request: &'a RunRequest,
    /// The root of the run tree.
    pub live: &'a Arc<LiveRun>,
    /// The conversation in which the person is asked.
    pub place: AskedIn,
    /// The call.
    pub call: &'a ToolCall,
    /// The question.
    pub wanted: Wanted,
    /// Whether the run holds a slot of subagents.
    pub holds_slot: bool,
    /// Ends the wait.
    pub cancel: &'a CancellationToken,
}

/// The answer about a call.
#[derive(Debug)]
pub enum ChildAnswer {
    /// The request is answered, or has expired.
    Decided(Box<ApprovalRequest>),
    /// Nobody was asked. The text is the result of the call.
    Refused(String),
    /// The wait was cancelled.
    Cancelled,
}

/// Asks people about calls of runs that other runs have started, and waits for their answers.
#[async_trait]
pub trait ChildAsker: Send + Sync {
    /// Asks about a call. If the same call of the same run tree was asked about before a restart, its request counts:
    /// nobody is asked twice.
    ///
    /// # Errors
    /// Another owner has the lane, or the store rejects the request.
    ///
    /// # Cancel safety
    /// If the future is dropped, nobody waits for the answer any more, and the request is withdrawn.
    async fn ask(&self, question: ChildCall<'_>) -> Result<ChildAnswer, StoreError>;

    /// Whether this routine run may pause for a question. It counts as waiting until it goes on or ends.
    ///
    /// # Errors
    /// The limit is reached: the result of the call.
    fn admit_pause(&self, run: RunId, call: &ToolCall, wanted: &Wanted) -> Result<(), String>;
}
