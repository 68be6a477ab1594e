//! The context of a batch of calls at the gate, and the context of each tool call.

use std::sync::Arc;

use belay_agent_loop::policies::RunLimits;
use belay_protocol::{
    Approved, Generation, HandlePort, MemoryOwner, Progress, Secret, ToolCall, ToolContext, ToolSet, ToolSpec, Variable,
};
use tokio_util::sync::CancellationToken;

use super::Bind;
use super::people::BatchPeople;
use crate::approvals::{Answers, ApprovalAnswer, Standing};
use crate::deadlines::WaitClock;
use crate::grants::WorkGrants;
use crate::joining::Joining;
use crate::journal::RunJournal;
use crate::live::LiveRun;
use crate::request::RunRequest;
use crate::tally::Tally;

/// The context of a batch of calls.
pub struct CallContext<'a> {
    /// The request of the run.
    pub request: &'a RunRequest,
    /// The run that a person can stop. Calls report their progress to it.
    pub live: &'a Arc<LiveRun>,
    /// The run's tools.
    pub tools: &'a ToolSet,
    /// Binds a tool that acts on the run itself to that run.
    pub bind: Bind<'a>,
    /// The limits of the run.
    pub limits: &'a RunLimits,
    /// Cancels the batch.
    pub cancel: &'a CancellationToken,
    /// The current generation of the run.
    pub generation: &'a Generation,
    /// The answers of people to approval requests for these calls.
    pub answers: &'a Answers,
    /// The permission of the one call of this batch, if it is the check of a goal and was admitted before.
    pub(crate) standing: Option<&'a Standing>,
    /// Whether the run is autonomous or a child run.
    pub(crate) by_itself: bool,
    /// Whether a person can be asked. The error is the reason why not, as the end of a sentence.
    pub may_ask: Result<(), &'static str>,
    /// The work item of the run, which may have grants.
    pub(crate) work: Option<&'a dyn WorkGrants>,
    /// Stores intents and results. It holds the account of the run tree.
    pub journal: &'a mut RunJournal,
    /// Variables of the run's skills, for tools that start programs.
    pub variables: Arc<[Variable]>,
    /// Newer messages of the person. Calls that have not begun when one arrives are skipped.
    pub newer: Option<&'a Joining>,
    /// The owner of the run's notes.
    pub memory: MemoryOwner,
    /// The waits of the run for people. They move the deadline of a call that starts another run.
    pub(crate) waits: &'a WaitClock,
    /// How a call asks a person; `None`: no call of this batch can.
    pub people: Option<BatchPeople>,
}

impl CallContext<'_> {
    /// The account of the run tree.
    pub(super) fn tally(&self) -> &Tally {
        self.journal.tally()
    }

    /// The context of one tool call.
    pub(super) fn tool_context(
        &self,
        call: &ToolCall,
        spec: &ToolSpec,
        credential: Option<Secret>,
        approved: Option<Approved>,
        handle: HandlePort,
    ) -> ToolContext {
        ToolContext {
            session: self.request.session.clone(),
            run_id: self.request.run,
            call_id: call.id.clone(),
            cancel: self.cancel.child_token(),
            generation: self.generation.clone(),
            credential,
            progress: Progress::to(self.live.clone()),
            variables: if spec.takes_variables { self.variables.clone() } else { Arc::default() },
            approved,
            memory: self.memory.clone(),
            untrusted: self.tally().untrusted(),
            person: self
                .people
                .as_ref()
                .filter(|_| spec.server.is_some())
                .map(|people| people.of(call))
                .unwrap_or_default(),
            handle,
        }
    }

    /// Whether a call that has not begun is skipped because a newer message has arrived. A call that a person has
    /// answered for is not skipped: the answer would be lost.
    pub(super) fn skips(&self, call: &ToolCall) -> bool {
        let answered = self.answers.get(&call.id).is_some_and(ApprovalAnswer::is_open);
        !answered && self.newer.is_some_and(Joining::is_offered)
    }
}
