//! Results of the client's tools: they resume the run that waits for them.
//!
//! The run is found by the ids of the calls alone. So the client needs no session, may send its whole list again, and may
//! come after a restart. Results that belong to no run of the client are part of the history that it sends.

use belay_protocol::{
    Ack, ApprovalId, ApprovalKind, ApprovalRequest, ApprovalState, ClientAnswer, ClientCall, ClientResult,
    CommandReply, Control, Principal, RunFilter, RunId, RunStatus, SessionKey, StopReason, StopTarget, client_call_id,
    parse_client_call_id,
};
use serde_json::{Map, Value};

use super::error::OpenAiError;
use super::request::{ChatRequest, LastResults};
use super::tool_calls::ToolCallBody;
use crate::app::App;
use crate::error::{ApiError, ErrorCode};

/// Most calls that an error names.
const NAMED: usize = 10;

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

/// A request that may bring results.
#[derive(Clone, Copy)]
pub(super) struct Brought<'a> {
    pub(super) request: &'a ChatRequest,
    /// The session that the client names.
    pub(super) named: Option<&'a SessionKey>,
    /// What the client wants to read again beside the answer.
    pub(super) note: Option<&'a Map<String, Value>>,
}

/// Resumes the run to whose calls the messages behind the last answer are the results; `None`: there is no such run. The
/// model reads what the user has written behind them after them.
pub(super) async fn resume(
    app: &App,
    who: &Principal,
    brought: Brought<'_>,
) -> Result<Option<ResumedRun>, OpenAiError> {
    let Brought { request, note, .. } = brought;
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
        } else if let Some(open) = open_calls(app, who, brought).await? {
            refuse_unknown(request, &results, &open)?;
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
    refuse_unknown(request, &results, &ids_of(asked.id, calls))?;
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
    let answer = ClientAnswer { results, tools: request.tools()?, note: note.cloned() };
    let control = Control::ClientResults { request: asked.id, answer: Box::new(answer) };
    match app.control(who.clone(), control).await {
        Ok(Ack::Command(CommandReply { resumes: Some(_), .. })) => Ok(Some(ResumedRun { is_again: false, ..resumed })),
        Ok(other) => Err(ApiError::unexpected(&other).into()),
        // Another request has brought the results at the same moment.
        Err(error) if error.code == ErrorCode::Decided => Ok(Some(resumed)),
        Err(error) => Err(error.into()),
    }
}

/// The calls that wait for results where the client is: those of the last answer that it shows, or of the session that it
/// names.
async fn open_calls(
    app: &App,
    who: &Principal,
    Brought { request, named, .. }: Brought<'_>,
) -> Result<Option<Vec<String>>, OpenAiError> {
    let mut id = request.unanswered_call();
    if let (None, Some(session)) = (&id, named) {
        let waits = RunFilter {
            session: Some(session.clone()),
            statuses: vec![RunStatus::Paused],
            limit: 1,
            ..RunFilter::default()
        };
        let paused = app.runs.runs(waits).await.map_err(ApiError::from)?;
        let calls = paused.first().and_then(ToolCallBody::of);
        id = calls.and_then(|calls| Some(calls.first()?.parts().0.to_owned()));
    }
    let Some(id) = id else { return Ok(None) };
    let asked = request_of(app, who, &id).await?.filter(|asked| waits(app, asked));
    Ok(asked.and_then(|asked| match &asked.kind {
        ApprovalKind::ClientCalls { calls, .. } => Some(ids_of(asked.id, calls)),
        _ => None,
    }))
}

fn ids_of(request: ApprovalId, calls: &[ClientCall]) -> Vec<String> {
    (0..calls.len()).map(|at| client_call_id(request, at)).collect()
}

fn waits(app: &App, request: &ApprovalRequest) -> bool {
    request.state_at(app.clock.now()) == ApprovalState::Waiting
}

/// Refuses results of calls that do not wait, and that the client does not show: they are of nothing. `open`: the calls that
/// wait.
fn refuse_unknown(request: &ChatRequest, given: &[(String, String)], open: &[String]) -> Result<(), OpenAiError> {
    let shown = request.shown_calls();
    let unknown = given.iter().map(|(id, _)| id).filter(|id| !open.contains(id) && !shown.contains(*id));
    let unknown: Vec<String> = unknown.take(NAMED).map(|id| format!("{:?}", OpenAiError::beginning(id))).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let message = format!(
        "there is no call {}; these calls wait for their results: {}. Nothing was taken",
        unknown.join(", "),
        open.join(", ")
    );
    Err(OpenAiError::invalid("messages", "invalid_value", message))
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
    if let Some(asked) = request_of(app, who, &id).await?.filter(|asked| waits(app, asked)) {
        app.send_control(who.clone(), Control::Stop(StopTarget::RunOfGoneClient(asked.run_id)));
    }
    Ok(())
}
