//! The response that a request continues.
//!
//! The newest response of a session is continued in that session. Another one is continued in a session of its own, with
//! the conversation up to it as the history; so is one whose request brings answers that the session does not have.

use belay_protocol::{Principal, RunFilter, RunRecord};
use serde_json::{Value, json};

use super::errors::no_previous_response;
use super::id::{Model, RESPONSE};
use super::input::Messages;
use super::request::ResponsesRequest;
use super::stored::find;
use crate::app::App;
use crate::error::ApiError;
use crate::routes::openai::OpenAiError;
use crate::routes::openai::request::is_ours;
use crate::routes::openai::tool_calls::ToolCallBody;

/// Most lines of a session that become the history of another one.
const LINES: u32 = 500;

/// Adds what the request continues to its messages. Returns the session that it names in this way.
///
/// # Errors
/// 404: there is no such response, or its conversation is not known any more.
pub(super) async fn add(
    app: &App,
    principal: &Principal,
    request: &ResponsesRequest,
    messages: &mut Messages,
) -> Result<Option<String>, OpenAiError> {
    let Some(text) = request.previous_response_id.as_deref() else { return Ok(None) };
    let Some((id, run)) = find(app, principal, RESPONSE, text).await? else {
        return Err(no_previous_response(text));
    };
    let is_text = [id.kind.model, Model::of(request.model.as_deref())].contains(&Model::Text);
    let continues = !is_text && !request.brings_answers() && is_newest(app, &run).await?;
    if !continues {
        let lines = lines_until(app, &run).await?;
        let lines = lines.ok_or_else(|| no_previous_response(text))?;
        lines.into_iter().for_each(|line| messages.add(line));
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

/// The conversation up to the end of a run, without texts of ours. `None`: the run is not in it any more, so that nobody
/// knows where it ends: the conversation was compacted or begun anew, or has gone on for too long.
async fn lines_until(app: &App, run: &RunRecord) -> Result<Option<Vec<Value>>, ApiError> {
    let mut lines = app.sessions.recent_history(&run.session, LINES).await?;
    let Some(last) = lines.iter().rposition(|line| line.run_id == Some(run.run_id)) else { return Ok(None) };
    lines.truncate(last + 1);
    let said = lines.into_iter().filter(|line| match line.role.as_str() {
        "user" => !is_ours(&line.text),
        role => role == "assistant",
    });
    Ok(Some(said.map(|line| json!({"role": line.role, "content": line.text})).collect()))
}

/// The calls of the client that a run waits for. The request has their results, or gives them up.
fn open_calls(run: &RunRecord) -> Option<Value> {
    let calls: Vec<Value> = ToolCallBody::of(run)?.iter().filter_map(|call| serde_json::to_value(call).ok()).collect();
    Some(json!({"role": "assistant", "content": null, "tool_calls": calls}))
}
