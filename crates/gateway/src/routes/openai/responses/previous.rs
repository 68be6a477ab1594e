//! The response that a request continues, and the items of earlier responses that it names.
//!
//! The newest response of a session is continued in that session. Another one is continued in a session of its own, with
//! the conversation up to it as the history.

use belay_protocol::{ApprovalKind, Principal, RunFilter, RunRecord, SessionKey};
use serde_json::{Value, json};

use super::id::{MESSAGE, Model, RESPONSE};
use super::input::Messages;
use super::items::CALL;
use super::part::{Part, shape_of};
use super::request::ResponsesRequest;
use super::stored::find;
use crate::app::App;
use crate::error::ApiError;
use crate::routes::openai::OpenAiError;
use crate::routes::openai::client_results::request_of;
use crate::routes::openai::tool_calls::ToolCallBody;

/// Most lines of a session that become the history of another one.
const LINES: u32 = 500;

/// Most items of earlier responses that are read; beyond it the older ones are ignored.
const REFERENCES_MAX: usize = 200;

/// Adds what the request continues to its messages. Returns the session that it names in this way.
///
/// # Errors
/// 404: there is no such response.
pub(super) async fn add(
    app: &App,
    principal: &Principal,
    request: &ResponsesRequest,
    messages: &mut Messages,
) -> Result<Option<String>, OpenAiError> {
    let Some(text) = request.previous_response_id.as_deref() else { return Ok(None) };
    let Some((id, run)) = find(app, principal, RESPONSE, text).await? else {
        return Err(OpenAiError::no_previous_response(text));
    };
    let is_text = [id.kind.model, Model::of(request.model.as_deref())].contains(&Model::Text);
    let continues = !is_text && is_newest(app, &run).await?;
    if !continues {
        for line in lines_until(app, &run).await? {
            messages.add(line);
        }
    }
    if let Some(calls) = open_calls(&run) {
        messages.add(calls);
    }
    Ok(continues.then(|| run.session.as_str().to_owned()))
}

/// Whether no later run of the session exists.
async fn is_newest(app: &App, run: &RunRecord) -> Result<bool, ApiError> {
    let newest = RunFilter { session: Some(run.session.clone()), limit: 1, ..RunFilter::default() };
    Ok(app.runs.runs(newest).await?.first().is_none_or(|newest| newest.run_id == run.run_id))
}

/// The conversation up to the end of a run.
async fn lines_until(app: &App, run: &RunRecord) -> Result<Vec<Value>, ApiError> {
    let session: &SessionKey = &run.session;
    let mut lines = app.sessions.recent_history(session, LINES).await?;
    if let Some(last) = lines.iter().rposition(|line| line.run_id == Some(run.run_id)) {
        lines.truncate(last + 1);
    }
    let is_said = |role: &str| matches!(role, "user" | "assistant");
    let said = lines.into_iter().filter(|line| is_said(&line.role));
    Ok(said.map(|line| json!({"role": line.role, "content": line.text})).collect())
}

/// The calls of the client that a run waits for. The request has their results, or gives them up.
fn open_calls(run: &RunRecord) -> Option<Value> {
    let calls: Vec<Value> = ToolCallBody::of(run)?.iter().filter_map(|call| serde_json::to_value(call).ok()).collect();
    Some(json!({"role": "assistant", "content": null, "tool_calls": calls}))
}

/// Replaces the references to items of earlier responses in the input by these items. Unknown ones stay as they are, and
/// are ignored later.
pub(super) async fn resolve(app: &App, principal: &Principal, input: &mut Option<Value>) -> Result<(), OpenAiError> {
    let items = input.as_mut().and_then(Value::as_array_mut).into_iter().flatten();
    let references = items.filter(|item| item["type"] == "item_reference");
    let mut references: Vec<&mut Value> = references.collect();
    let older = references.len().saturating_sub(REFERENCES_MAX);
    for item in references.drain(older..) {
        let id = item["id"].as_str().unwrap_or_default().to_owned();
        let found = match id.strip_prefix(CALL) {
            Some(call) => called(app, principal, &format!("call_{call}")).await?,
            None => said(app, principal, &id).await?,
        };
        if let Some(found) = found {
            *item = found;
        }
    }
    Ok(())
}

/// The text of a response.
async fn said(app: &App, principal: &Principal, id: &str) -> Result<Option<Value>, OpenAiError> {
    let Some((id, run)) = find(app, principal, MESSAGE, id).await? else { return Ok(None) };
    let shape = shape_of(app, principal, id, &run);
    let part = Part::read(app, &shape.head, run.into(), id.after).await?;
    Ok(Some(json!({"type": "message", "role": "assistant", "content": part.text(&shape.head)})))
}

/// A call of a response.
async fn called(app: &App, principal: &Principal, id: &str) -> Result<Option<Value>, OpenAiError> {
    let Some(request) = request_of(app, principal, id).await? else { return Ok(None) };
    let ApprovalKind::ClientCalls { calls, .. } = &request.kind else { return Ok(None) };
    let calls = ToolCallBody::of_request(request.id, calls);
    Ok(calls.iter().find(|call| call.parts().0 == id).map(|call| super::items::call(call, "completed")))
}
