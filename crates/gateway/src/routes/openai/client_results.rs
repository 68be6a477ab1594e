//! Results of the client's tools: they resume the run that waits for them.
//!
//! The run is found by the ids of the calls alone. So the client needs no session, may send its whole list again, and may
//! come after a restart. Results that belong to no run of the client are part of the history that it sends.

use belay_protocol::{
    Ack, ApprovalId, ApprovalKind, ApprovalRequest, ApprovalState, ClientAnswer, ClientCall, ClientResult,
    CommandReply, Control, Principal, RunId, SessionKey, StopReason, StopTarget, client_call_id, parse_client_call_id,
};

use super::error::OpenAiError;
use super::request::{ChatRequest, LastResults};
use crate::app::App;
use crate::error::{ApiError, ErrorCode};

/// A run that goes on, or that has gone on before.
pub(super) struct ResumedRun {
    pub(super) run: RunId,
    pub(super) session: SessionKey,
    /// The request that the results answer.
    pub(super) request: ApprovalId,
    /// Whether it has got these results before.
    pub(super) is_again: bool,
}

/// The request of a call of ours, if this client may answer it.
pub(super) async fn request_of(app: &App, who: &Principal, id: &str) -> Result<Option<ApprovalRequest>, OpenAiError> {
    let Some((request, _)) = parse_client_call_id(id) else { return Ok(None) };
    let found = app.approvals.approval(request).await.map_err(ApiError::from)?;
    Ok(found.filter(|request| request.kind.is_of_client() && request.may_be_answered_by(who, &request.session)))
}

/// Resumes the run to whose calls the messages behind the last answer are the results; `None`: there is no such run. The
/// model reads what the user has written behind them after them.
pub(super) async fn resume(
    app: &App,
    who: &Principal,
    request: &ChatRequest,
) -> Result<Option<ResumedRun>, OpenAiError> {
    let LastResults { results, said } = request.last_results()?;
    let mut asked = None;
    for (id, _) in &results {
        asked = request_of(app, who, id).await?;
        if asked.is_some() {
            break;
        }
    }
    let Some(asked) = asked else {
        if results.is_empty() {
            give_up(app, who, request).await?;
        }
        return Ok(None);
    };
    let resumed = ResumedRun { run: asked.run_id, session: asked.session.clone(), request: asked.id, is_again: true };
    let ApprovalKind::ClientCalls { calls, results: before } = &asked.kind else { return Ok(None) };
    match asked.state_at(app.clock.now()) {
        ApprovalState::Waiting => {}
        // The same results again, as after a broken connection: the client gets the answer of the run that has them. With
        // other words behind them, they are a history.
        ApprovalState::Approved | ApprovalState::Used => {
            let is_same = said.is_empty() || before.iter().any(|result| result.said == said);
            return Ok(is_same.then_some(resumed));
        }
        // Nobody waits for the results any more. A run that was stopped stays stopped.
        ApprovalState::Denied | ApprovalState::Expired | ApprovalState::Withdrawn => {
            let run = app.runs.run(asked.run_id).await.map_err(ApiError::from)?;
            let ended = run.and_then(|run| run.reason).is_some_and(|reason| reason != StopReason::ClientGone);
            return Ok((ended && said.is_empty()).then_some(resumed));
        }
    }
    request.form()?; // nothing is taken from a request that cannot be answered
    let mut results = match matched(asked.id, calls, &results) {
        // The user goes on instead of the other results.
        Err(_) if !said.is_empty() => {
            give_up(app, who, request).await?;
            return Ok(None);
        }
        results => results?,
    };
    if let Some(last) = results.last_mut() {
        last.said = said;
    }
    let answer = ClientAnswer { results, tools: request.tools()? };
    let control = Control::ClientResults { request: asked.id, answer: Box::new(answer) };
    match app.control(who.clone(), control).await {
        Ok(Ack::Command(CommandReply { resumes: Some(_), .. })) => Ok(Some(ResumedRun { is_again: false, ..resumed })),
        Ok(other) => Err(ApiError::unexpected(&other).into()),
        // Another request has brought the results at the same moment.
        Err(error) if error.code == ErrorCode::Decided => Ok(Some(resumed)),
        Err(error) => Err(error.into()),
    }
}

/// The results of these calls. Of two results of a call the first one counts.
fn matched(
    request: ApprovalId,
    calls: &[ClientCall],
    given: &[(String, String)],
) -> Result<Vec<ClientResult>, OpenAiError> {
    let mut results = Vec::with_capacity(calls.len());
    let mut missing = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        let id = client_call_id(request, at);
        match given.iter().find(|(given, _)| *given == id) {
            Some((_, text)) => {
                results.push(ClientResult { call: call.id.clone(), text: text.clone(), said: String::new() });
            }
            None => missing.push(id),
        }
    }
    if missing.is_empty() {
        return Ok(results);
    }
    let message = format!(
        "each call needs its result (a message of role tool, or a function_call_output); these calls have none: {}. Nothing \
         was taken; send all results together",
        missing.join(", ")
    );
    Err(OpenAiError::invalid("messages", "invalid_value", message))
}

/// Ends the run that waits for results if the client sends another message instead.
async fn give_up(app: &App, who: &Principal, request: &ChatRequest) -> Result<(), OpenAiError> {
    let Some(id) = request.unanswered_call() else { return Ok(()) };
    let waits = |request: &ApprovalRequest| request.state_at(app.clock.now()) == ApprovalState::Waiting;
    if let Some(asked) = request_of(app, who, &id).await?.filter(waits) {
        app.send_control(who.clone(), Control::Stop(StopTarget::RunOfGoneClient(asked.run_id)));
    }
    Ok(())
}
