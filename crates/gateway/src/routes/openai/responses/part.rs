//! The part of a run that is one response: from the request's message, or from the results that it brought, up to the end
//! of the run or the next calls of the client's tools. The store has all of it.

use std::sync::Arc;

use belay_protocol::{
    ApprovalId, ApprovalKind, ApprovalRequest, CallId, Message, MessageBody, Principal, RunRecord, RunWatch,
};
use serde_json::Value;

use super::body::{ResponseBody, Shape};
use super::id::ResponseId;
use super::items;
use super::shown::shown_by_default;
use crate::app::App;
use crate::error::ApiError;
use crate::routes::openai::answer::Head;
use crate::routes::openai::format::AnswerForm;
use crate::routes::openai::outcome::{End, Outcome};
use crate::routes::openai::tool_calls::ToolCallBody;
use crate::routes::openai::written::Written;

/// A response, as the store has it now.
pub(super) struct Part {
    pub(super) outcome: Outcome,
    /// The texts of its steps so far.
    pub(super) texts: Vec<String>,
}

impl Part {
    /// Reads the part of a run that a response is.
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
        let texts = texts_between(&messages, begin.map(|at| &requests[at]), next);
        let outcome = match end {
            Some(end) => Outcome { run, end },
            None => Outcome::of(app, head, run).await,
        };
        Ok(Self { outcome, texts })
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
        let steps = self.texts.iter().zip(1..);
        let mut text: String = steps.map(|(text, step)| written.piece(step, text.clone())).collect();
        text.push_str(&written.rest(end));
        text
    }

    /// The items.
    pub(super) fn output(&self, shape: &Shape) -> Vec<Value> {
        match &self.outcome.end {
            End::Calls(calls) => items::output(shape.message(), &self.text(&shape.head), calls),
            End::Text { .. } => items::output(shape.message(), &self.text(&shape.head), &[]),
            End::Error(_) => Vec::new(),
        }
    }

    /// The response.
    pub(super) fn body(&self, shape: &Shape) -> ResponseBody {
        shape.ended(&self.outcome, self.output(shape))
    }

    /// What the run has said before the step that a watch shows.
    pub(super) fn said_before(&self, watch: Option<&RunWatch>) -> String {
        let now = watch.map(|watch| &watch.so_far);
        // The step may have been stored since the watch began.
        let is_now = |text: &String| now.is_some_and(|now| !now.text.is_empty() && text.starts_with(now.text.trim()));
        let known = self.texts.len() - usize::from(self.texts.last().is_some_and(is_now));
        self.texts[..known].join("\n\n")
    }
}

/// The head and the common fields of a response whose request is not known any more.
pub(super) fn shape_of(app: &App, principal: &Principal, id: ResponseId, run: &RunRecord) -> Shape {
    let head = Head::new(id.kind.model.name(app), run.session.clone(), false, run.accepted_at);
    let form = if id.kind.json { AnswerForm::of_stored(run) } else { AnswerForm::Text };
    let head = head.of_run(run.run_id, run.accepted_at).in_form(form);
    Shape::new(app, principal, head, Some(id), shown_by_default())
}

/// The texts of the model behind the answer of one request, up to the calls of the next.
fn texts_between(
    messages: &[Arc<Message>],
    after: Option<&ApprovalRequest>,
    until: Option<&ApprovalRequest>,
) -> Vec<String> {
    let (after, until) = (after.map(calls_of).unwrap_or_default(), until.map(calls_of).unwrap_or_default());
    let is_answer = |message: &&Arc<Message>| match &message.body {
        MessageBody::Tool(result) => after.contains(&&result.call_id),
        _ => false,
    };
    let begin = messages.iter().rposition(|message| is_answer(&message)).map_or(0, |at| at + 1);
    let mut texts = Vec::new();
    for message in messages[begin..].iter().filter(|message| message.scope.is_thread()) {
        let MessageBody::Assistant { text, tool_calls } = &message.body else { continue };
        if !text.trim().is_empty() {
            texts.push(text.clone());
        }
        if tool_calls.iter().any(|call| until.contains(&&call.id)) {
            break;
        }
    }
    texts
}

fn calls_of(request: &ApprovalRequest) -> Vec<&CallId> {
    match &request.kind {
        ApprovalKind::ClientCalls { calls, .. } => calls.iter().map(|call| &call.id).collect(),
        ApprovalKind::Approval | ApprovalKind::Credential { .. } => vec![&request.call_id],
    }
}
