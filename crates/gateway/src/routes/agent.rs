//! `POST /api/v1/agent`, `POST /api/v1/agent/wait`, and the streams of agent events: the RPC for clients without
//! WebSocket.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use belay_protocol::Ack;

use super::resume::{Resume, as_response};
use crate::agent_rpc::{AcceptedAnswer, AgentAnswer, CommandAnswer, WaitParams, WaitedRun, finished, wait_for};
use crate::app::Shared;
use crate::checks::no_such_run;
use crate::error::ApiError;
use crate::extract::{Caller, JsonBody};
use crate::streams::{Source, events};
use crate::submit::AgentParams;
use crate::visibility::{VisibleRun, VisibleSession};

/// Accepts a message. 202 once it is on disk; 200 with the end of its run if it was sent before and the run has ended;
/// 200 for a command.
pub(crate) async fn send(
    State(app): State<Shared>,
    Caller(principal): Caller,
    JsonBody(params): JsonBody<AgentParams>,
) -> Result<Response, ApiError> {
    match app.ask(params.check(&app, principal, false)?).await? {
        Ack::Accepted(accepted) => match finished(&app, &accepted).await? {
            Some(end) => Ok(Json(AgentAnswer::Run(end)).into_response()),
            None => Ok((StatusCode::ACCEPTED, Json(AcceptedAnswer::from(&accepted))).into_response()),
        },
        Ack::Command(reply) => Ok(Json(AgentAnswer::Command(CommandAnswer::from(&reply))).into_response()),
        other => Err(ApiError::unexpected(&other)),
    }
}

/// Waits for the end of a run. The timeout ends the wait, never the run.
pub(crate) async fn wait(
    State(app): State<Shared>,
    Caller(principal): Caller,
    JsonBody(params): JsonBody<WaitParams>,
) -> Result<Json<WaitedRun>, ApiError> {
    let record = wait_for(&app, principal, params).await?;
    Ok(Json(WaitedRun::from(&*record)))
}

/// Streams the agent events of one run, to its end.
pub(crate) async fn of_run(
    State(app): State<Shared>,
    Caller(principal): Caller,
    run: VisibleRun,
    Resume { after, permit, reset }: Resume,
) -> Result<Response, ApiError> {
    let id = run.id();
    let run = app.runs.run(id).await?.ok_or_else(|| no_such_run(id))?;
    let source = Source::of_run(app.clone(), principal, id, run.session, after.unwrap_or_default(), None);
    Ok(as_response(reset, events(app, source, permit)).into_response())
}

/// Streams the agent events of a session's runs, without end. Without a cursor it begins now.
pub(crate) async fn of_session(
    State(app): State<Shared>,
    Caller(principal): Caller,
    session: VisibleSession,
    Resume { after, permit, reset }: Resume,
) -> Response {
    let mut source = Source::of_session(app.clone(), principal, session.into_key(), after);
    source.find_running().await;
    as_response(reset, events(app, source, permit)).into_response()
}
