//! The part of a run that is one answer: from the request's message, or from the results that it brought, up to the end of
//! the run or the next calls of the client's tools. The store has all of it.

use std::sync::Arc;

use belay_protocol::{ApprovalId, ApprovalKind, ApprovalRequest, RunId, RunRecord, RunStatus, RunWatch};

use super::answer::Head;
use super::outcome::{End, Outcome, going_on};
use super::steps::Steps;
use super::tool_calls::ToolCallBody;
use super::turn::{Begins, RunTurn};
use super::used::{used_before, used_by, used_since};
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
    /// Waits until the run has ended or waits for somebody, and reads the answer. Its client has it with that.
    ///
    /// # Errors
    /// The store cannot be read, or has no such run.
    pub(super) async fn when_there(head: &Head, run: RunTurn) -> Result<Self, ApiError> {
        let RunTurn { mut reader, watch, begins, .. } = run;
        let app = reader.app.clone();
        let read = async {
            let outcome = Outcome::when_there(&app, head, reader.run, watch).await?;
            let run = &outcome.run;
            // An answer without tools is its reply alone.
            let is_short = run.usage.tool_calls == 0 && run.status == RunStatus::Completed;
            if is_short || matches!(outcome.end, End::Error(_)) || app.texts.are_checked || !head.form().is_text() {
                return Ok(Self { outcome, steps: Steps::default() });
            }
            let after = place_of(&app, begins, run.run_id).await;
            Ok(Self::read_of_ended(&app, head, outcome.run, after).await)
        };
        let part = read.await;
        reader.served();
        part
    }

    /// Reads the part of a run, as it is now, behind the answer of a request; `None`: from its beginning.
    pub(super) async fn read(
        app: &App,
        head: &Head,
        run: Arc<RunRecord>,
        after: Option<ApprovalId>,
    ) -> Result<Self, ApiError> {
        let requests = app.approvals.approvals_of(run.run_id).await?;
        Self::among(app, head, going_on(run, &requests), after, &requests).await
    }

    /// The part among the requests of its run.
    async fn among(
        app: &App,
        head: &Head,
        run: Arc<RunRecord>,
        after: Option<ApprovalId>,
        requests: &[ApprovalRequest],
    ) -> Result<Self, ApiError> {
        let begin = after.and_then(|after| requests.iter().position(|request| request.id == after));
        let (earlier, later) = requests.split_at(begin.map_or(0, |at| at + 1));
        let next = later.iter().find(|request| request.kind.is_of_client());
        let messages = app.runs.run_messages(run.run_id).await?;
        let mut steps = Steps::between(&messages, earlier, next);
        if app.texts.are_checked {
            steps.texts.clear();
        }
        let mut outcome = Outcome::of(app, head, run).await;
        if let Some((id, ApprovalKind::ClientCalls { calls, .. })) = next.map(|request| (request.id, &request.kind)) {
            outcome.end = End::Calls(ToolCallBody::of_request(id, calls));
        }
        let before = earlier.iter().rev().find_map(|request| used_before(&request.kind)).unwrap_or(head.used);
        let until = next.and_then(|next| used_before(&next.kind)).unwrap_or_else(|| used_by(&outcome.run.usage));
        outcome.used = used_since(before, until);
        Ok(Self { outcome, steps })
    }

    /// The same of a run that has ended or waits. An unreadable store costs the steps alone: a client repeats an error of the
    /// server, and the work would be done twice.
    pub(super) async fn read_of_ended(app: &App, head: &Head, run: Arc<RunRecord>, after: Option<ApprovalId>) -> Self {
        let read = async {
            let requests = app.approvals.approvals_of(run.run_id).await?;
            Self::among(app, head, run.clone(), after, &requests).await
        };
        match read.await {
            Ok(part) => part,
            Err(error) => {
                tracing::warn!(error = %error.message, run_id = %run.run_id, "the texts before the tool calls of an answer are unknown");
                let (outcome, mut steps) = (Outcome::of(app, head, run).await, Steps::default());
                if matches!(outcome.end, End::Calls(_)) && !outcome.text().is_empty() {
                    steps.texts.push((1, outcome.text().to_owned())); // hooks have left none
                }
                Self { outcome, steps }
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

    /// The texts of the answer before the step that a watch shows, each with its step. That step and later ones may have
    /// been stored since the watch began. `earlier`: the steps of the run that were stored before; they count while the
    /// watch shows none.
    pub(super) fn said_before(&self, watch: Option<&RunWatch>, earlier: u32) -> Vec<(u32, String)> {
        let last = match watch.map(|watch| watch.so_far.step) {
            None => u32::MAX,
            Some(0) => earlier,
            Some(now) => now - 1,
        };
        self.steps.texts.iter().filter(|(step, _)| *step <= last).cloned().collect()
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
