//! A part of a run in the forms of this API.

use belay_protocol::{ApprovalId, ClientNote, DeclaredOutput, Principal, RunRecord};
use serde_json::{Map, Value, json};

use super::body::{ResponseBody, Shape};
use super::id::ResponseId;
use super::items;
use super::shown::shown_by_default;
use crate::app::App;
use crate::error::ApiError;
use crate::routes::openai::answer::Head;
use crate::routes::openai::format::{AnswerForm, NAME};
use crate::routes::openai::outcome::End;
use crate::routes::openai::part::Part;

impl Part {
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
}

/// The head and the common fields of a response whose request is not known any more.
pub(super) fn shape_of(app: &App, principal: &Principal, id: ResponseId, run: &RunRecord) -> Shape {
    let head = Head::new(id.kind.model.name(app), run.session.clone(), false, run.accepted_at);
    let form = if id.kind.json { form_of_stored(run) } else { AnswerForm::Text };
    let head = head.of_run(run.run_id, run.accepted_at).in_form(form);
    Shape::new(app, principal, head, Some(id), shown_by_default())
}

/// The form of an ended run whose request is not known any more: the run has produced one output.
fn form_of_stored(run: &RunRecord) -> AnswerForm {
    let reply = run.reply.as_deref().unwrap_or_default();
    let outputs: Map<String, Value> = serde_json::from_str(reply).unwrap_or_default();
    let name = outputs.into_iter().next().map_or_else(|| NAME.into(), |(name, _)| name);
    AnswerForm::Json(DeclaredOutput { name, schema: json!({}), description: None })
}

/// The same with what the run keeps of the request.
pub(super) async fn shape_with_note(
    app: &App,
    principal: &Principal,
    id: ResponseId,
    run: &RunRecord,
) -> Result<Shape, ApiError> {
    let mut shape = shape_of(app, principal, id, run);
    let notes = app.runs.client_notes(id.run).await?;
    if let Some(note) = note_of(app, id, notes).await? {
        shape.show(note.fields);
    }
    Ok(shape)
}

/// The note of a response among those of its run: its own, or else the one before, which its request has repeated. A request
/// that answers a question brings none.
async fn note_of(app: &App, id: ResponseId, notes: Vec<ClientNote>) -> Result<Option<ClientNote>, ApiError> {
    if notes.is_empty() || notes.iter().any(|note| note.after == id.after) {
        return Ok(notes.into_iter().find(|note| note.after == id.after));
    }
    let requests = app.approvals.approvals_of(id.run).await?;
    let place = |after: Option<ApprovalId>| match after {
        None => Some(0),
        Some(after) => requests.iter().position(|request| request.id == after).map(|at| at + 1),
    };
    let Some(here) = place(id.after).filter(|at| *at > 0 && requests[at - 1].kind.is_of_client()) else {
        return Ok(None);
    };
    Ok(notes.into_iter().rfind(|note| place(note.after).is_some_and(|at| at < here)))
}
