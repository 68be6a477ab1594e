//! Results of the client's tools: they resume the run that waits for them.
//!
//! The run is found by the ids of the calls alone. So the client needs no session, may send its whole list again, and may
//! come after a restart. Results that belong to no run of the client are part of the history that it sends.

use belay_protocol::{
    Ack, ApprovalId, ApprovalKind, ApprovalRequest, ApprovalState, ClientAnswer, CommandReply, Control, Partial,
    Principal, RunFilter, RunStatus, RunWatch, SessionKey, StopReason, StopTarget, UsedTokens, parse_client_call_id,
};
use serde_json::{Map, Value};

use super::error::OpenAiError;
use super::given_results::{ids_of, matched, refuse_unknown};
use super::readers::{Reader, Reading};
use super::request::{ChatRequest, LastResults};
use super::tool_calls::ToolCallBody;
use super::used::{used_before, used_by};
use crate::app::{App, Shared};
use crate::error::{ApiError, ErrorCode};

/// A run that goes on, or that has gone on before.
pub(super) struct ResumedRun {
    pub(super) reader: Reader,
    /// A watch that began before the run went on, so that it misses no word. `None`: the run has gone on before, or it was
    /// not live.
    pub(super) watch: Option<RunWatch>,
    pub(super) session: SessionKey,
    /// The request that the results answer.
    pub(super) request: ApprovalId,
    /// The tokens of the run before them.
    pub(super) used: UsedTokens,
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
    pub(super) reading: Reading,
}

/// Resumes the run to whose calls the messages behind the last answer are the results; `None`: there is no such run. The
/// model reads what the user has written beside them after them.
///
/// # Cancel safety
/// The run of a client that goes away meanwhile ends as that of any client that has gone, if it has got the results.
pub(super) async fn resume(
    app: &Shared,
    who: &Principal,
    brought: Brought<'_>,
) -> Result<Option<ResumedRun>, OpenAiError> {
    let Brought { request, note, reading, .. } = brought;
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
    let ApprovalKind::ClientCalls { calls, results: before } = &asked.kind else { return Ok(None) };
    match asked.state_at(app.clock.now()) {
        ApprovalState::Waiting => {}
        // The same results again, as after a broken connection: the client gets the answer of the run that has them. With
        // other words beside them, they are a history.
        ApprovalState::Approved | ApprovalState::Used => {
            let is_same = said.is_empty() || before.iter().any(|result| result.said == said);
            return Ok(is_same.then(|| joined(app, who, &asked, reading)));
        }
        // Nobody waits for the results any more. A run that was stopped stays stopped.
        ApprovalState::Denied | ApprovalState::Expired | ApprovalState::Withdrawn => {
            let run = app.runs.run(asked.run_id).await.map_err(ApiError::from)?;
            let ended = run.and_then(|run| run.reason).is_some_and(|reason| reason != StopReason::ClientGone);
            return Ok((ended && said.is_empty()).then(|| joined(app, who, &asked, reading)));
        }
    }
    request.form()?; // nothing is taken from a request that cannot be answered
    refuse_unknown(request, &results, &ids_of(asked.id, calls))?;
    let results = match matched(asked.id, calls, &results) {
        // The user goes on instead of the other results.
        Err(_) if !said.is_empty() => {
            give_up(app, who, request).await?;
            return Ok(None);
        }
        results => results?,
    };
    let answer = ClientAnswer { results, tools: request.tools()?, note: note.cloned() };
    give(app, who, asked, said, answer, reading).await.map(Some)
}

/// Gives a run the results that it waits for.
async fn give(
    app: &Shared,
    who: &Principal,
    asked: ApprovalRequest,
    said: String,
    mut answer: ClientAnswer,
    reading: Reading,
) -> Result<ResumedRun, OpenAiError> {
    // Both before the run goes on: later, its first words may have been said, and their tokens counted.
    let paused = app.runs.run(asked.run_id).await.map_err(ApiError::from)?;
    let used = paused.map(|run| used_by(&run.usage)).unwrap_or_default();
    let watch = app.watch(who.clone(), asked.run_id, reading.streams()).await?;
    if let Some(last) = answer.results.last_mut() {
        (last.said, last.used) = (said, Some(used));
    }
    // From now on, the run ends with its client.
    let mut resumed = joined(app, who, &asked, reading);
    let control = Control::ClientResults { request: asked.id, answer: Box::new(answer) };
    match app.control(who.clone(), control).await {
        // The client has read what the run has said before its calls.
        Ok(Ack::Command(CommandReply { resumes: Some(_), .. })) => {
            let watch = watch.map(|watch| RunWatch { so_far: Partial::default(), ..watch });
            Ok(ResumedRun { watch, used, ..resumed })
        }
        // Another request has brought the results at the same moment.
        Err(error) if error.code == ErrorCode::Decided => Ok(ResumedRun { used, ..resumed }),
        other => {
            resumed.reader.served(); // the run waits as before
            Err(match other {
                Ok(other) => ApiError::unexpected(&other).into(),
                Err(error) => error.into(),
            })
        }
    }
}

/// A run that has got its results, or ended without them.
fn joined(app: &Shared, who: &Principal, asked: &ApprovalRequest, reading: Reading) -> ResumedRun {
    ResumedRun {
        reader: Reader::new(app.clone(), who.clone(), asked.run_id, reading.streams()).of_reading(reading),
        watch: None,
        session: asked.session.clone(),
        request: asked.id,
        used: used_before(&asked.kind).unwrap_or_default(),
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

fn waits(app: &App, request: &ApprovalRequest) -> bool {
    request.state_at(app.clock.now()) == ApprovalState::Waiting
}

/// Ends the run that waits for results if the client sends another message instead.
async fn give_up(app: &App, who: &Principal, request: &ChatRequest) -> Result<(), OpenAiError> {
    let Some(id) = request.unanswered_call() else { return Ok(()) };
    if let Some(asked) = request_of(app, who, &id).await?.filter(|asked| waits(app, asked)) {
        app.send_control(who.clone(), Control::Stop(StopTarget::RunOfGoneClient(asked.run_id)));
    }
    Ok(())
}
