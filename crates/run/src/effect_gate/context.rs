//! What the gate is given with a batch of calls, and what each tool is given with its call.

use std::sync::Arc;

use belay_agent_loop::policies::RunLimits;
use belay_protocol::{Approved, Generation, Progress, Secret, ToolCall, ToolContext, ToolSet, ToolSpec, Variable};
use tokio_util::sync::CancellationToken;

use super::Bind;
use crate::approvals::{Answers, ApprovalAnswer};
use crate::joining::Joining;
use crate::journal::RunJournal;
use crate::live::LiveRun;
use crate::request::RunRequest;
use crate::tally::Tally;

/// What a batch of calls is made in.
pub struct CallContext<'a> {
    /// What was asked of the run.
    pub request: &'a RunRequest,
    /// The run that a person can stop. Calls report their progress to it.
    pub live: &'a Arc<LiveRun>,
    /// The run's tools.
    pub tools: &'a ToolSet,
    /// Gives a tool that acts on the run itself its hold on that run.
    pub bind: Bind<'a>,
    /// The limits that calls are counted by.
    pub limits: &'a RunLimits,
    /// Says stop.
    pub cancel: &'a CancellationToken,
    /// Which life of the run this is.
    pub generation: &'a Generation,
    /// What people have answered about these calls.
    pub answers: &'a Answers,
    /// Whether it works by itself: nobody has asked this very run for what it does.
    pub(crate) by_itself: bool,
    /// Whether a person can be asked; else why nobody can, as the end of a sentence.
    pub may_ask: Result<(), &'static str>,
    /// Where intent and result are written, with the account of the run's tree.
    pub journal: &'a mut RunJournal,
    /// Variables of the run's skills, for tools that start programs.
    pub variables: Arc<[Variable]>,
    /// What the person may have said meanwhile; calls that have not begun then do not.
    pub newer: Option<&'a Joining>,
}

impl CallContext<'_> {
    /// Where calls are counted, and whether untrusted content was seen.
    pub(super) fn tally(&self) -> &Tally {
        self.journal.tally()
    }

    /// What the tool of a call is given.
    pub(super) fn tool_context(
        &self,
        call: &ToolCall,
        spec: &ToolSpec,
        credential: Option<Secret>,
        approved: Option<Approved>,
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
        }
    }

    /// Whether a call that has not begun is skipped: the person has said something newer. One that a person was asked about
    /// is not: its answer would be lost.
    pub(super) fn skips(&self, call: &ToolCall) -> bool {
        let answered = self.answers.get(&call.id).is_some_and(ApprovalAnswer::is_open);
        !answered && self.newer.is_some_and(Joining::is_offered)
    }
}
