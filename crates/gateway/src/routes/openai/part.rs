//! The part of a run that is one answer: from the request's message, or from the results that it brought, up to the end of
//! the run or the next calls of the client's tools. The store has all of it.

use std::sync::Arc;

use belay_protocol::{ApprovalId, ApprovalKind, RunId, RunRecord, RunWatch};

use super::answer::Head;
use super::outcome::{End, Outcome};
use super::steps::Steps;
use super::tool_calls::ToolCallBody;
use super::turn::Begins;
use super::written::Written;
use crate::app::App;
use crate::error::ApiError;

/// An answer, as the store has it now.
pub(super) struct Part {
    pub(super) outcome: Outcome,
    /// Its steps so far. Where hooks check what is sent, their texts are left out: hooks have seen the end alone.
    pub(super) steps: Steps,
}

impl Part {
    /// Reads the part of a run behind the answer of a request; `None`: from its beginning.
    pub(super) async fn read(
        app: &App,
        head: &Head,
        run: Arc<RunRecord>,
        after: Option<ApprovalId>,
    ) -> Result<Self, ApiError> {
        let requests = app.approvals.approvals_of(run.run_id).await?;
        let begin = after.and_then(|after| requests.iter().position(|request| request.id == after));
        let asked = &requests[begin.map_or(0, |at| at + 1)..];
        let next = asked.iter().find(|request| request.kind.is_of_client());
        let end = match next.map(|request| (request.id, &request.kind)) {
            Some((id, ApprovalKind::ClientCalls { calls, .. })) => {
                Some(End::Calls(ToolCallBody::of_request(id, calls)))
            }
            _ => None,
        };
        let messages = app.runs.run_messages(run.run_id).await?;
        let mut steps = Steps::between(&messages, begin.map(|at| &requests[at]), next);
        if app.texts.are_checked {
            steps.texts.clear();
        }
        let outcome = match end {
            Some(end) => Outcome { run, end },
            None => Outcome::of(app, head, run).await,
        };
        Ok(Self { outcome, steps })
    }

    /// The same of a run that has ended or waits. An unreadable store costs the steps alone: a client repeats an error of the
    /// server, and the work would be done twice.
    pub(super) async fn read_of_ended(app: &App, head: &Head, run: Arc<RunRecord>, after: Option<ApprovalId>) -> Self {
        match Self::read(app, head, run.clone(), after).await {
            Ok(part) => part,
            Err(error) => {
                tracing::warn!(error = %error.message, run_id = %run.run_id, "the texts before the tool calls of an answer are unknown");
                Self { outcome: Outcome::of(app, head, run).await, steps: Steps::default() }
            }
        }
    }

    /// The whole text.
    pub(super) fn text(&self, head: &Head) -> String {
        let end = match &self.outcome.end {
            End::Calls(_) => "",
            _ => self.outcome.text(),
        };
        if !head.form().is_text() {
            return end.to_owned();
        }
        let mut written = Written::default();
        let steps = self.steps.texts.iter();
        let mut text: String = steps.map(|(step, text)| written.piece(*step, text.clone())).collect();
        text.push_str(&written.rest(end));
        text
    }

    /// The text of the answer before the step that a watch shows. That step and later ones may have been stored since
    /// the watch began. `earlier`: the steps of the run that were stored before; they count while the watch shows none.
    pub(super) fn said_before(&self, watch: Option<&RunWatch>, earlier: u32) -> String {
        let last = match watch.map(|watch| watch.so_far.step) {
            None => u32::MAX,
            Some(0) => earlier,
            Some(now) => now - 1,
        };
        let said = self.steps.texts.iter().filter(|(step, _)| *step <= last);
        said.map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n\n")
    }
}

/// The place in its run at which an answer begins. The run has its answer already, so an unreadable store costs the place
/// alone: the answer then begins with the run.
pub(super) async fn place_of(app: &App, begins: Begins, run: RunId) -> Option<ApprovalId> {
    match begins {
        Begins::New => None,
        Begins::Results(request) => Some(request),
        Begins::Answer => match app.approvals.approvals_of(run).await {
            Ok(asked) => asked.iter().rev().find(|asked| asked.decided_at.is_some()).map(|asked| asked.id),
            Err(error) => {
                tracing::warn!(%error, run_id = %run, "the place of an answer in its run is unknown");
                None
            }
        },
    }
}
