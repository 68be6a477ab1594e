//! `GET /api/v1/sessions`, `/{key}` and `/{key}/messages`.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use belay_protocol::{HistoryEntry, SessionFilter, SessionSummary};
use serde::{Deserialize, Serialize};

use crate::app::Shared;
use crate::checks::{check_limit, no_such_session};
use crate::error::ApiError;
use crate::extract::{Caller, Params};
use crate::visibility::VisibleSession;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    limit: Option<u32>,
    /// Whether ephemeral sessions are listed too.
    #[serde(default)]
    all: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HistoryParams {
    after: Option<u64>,
    limit: Option<u32>,
}

#[derive(Serialize)]
struct SessionList {
    sessions: Vec<SessionSummary>,
}

#[derive(Serialize)]
struct History {
    messages: Vec<HistoryEntry>,
    /// What `after` takes for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

/// Sessions, most recently used first.
pub(crate) async fn list(
    State(app): State<Shared>,
    Caller(principal): Caller,
    Params(params): Params<ListParams>,
) -> Result<Response, ApiError> {
    let ephemeral = params.all;
    let (limit, read) = (check_limit(params.limit)?, |limit| app.sessions.sessions(SessionFilter { limit, ephemeral }));
    let sessions = app.visibility(&principal).page(limit, read, |session| &session.session).await?;
    Ok(Json(SessionList { sessions }).into_response())
}

/// One session.
pub(crate) async fn show(State(app): State<Shared>, session: VisibleSession) -> Result<Json<SessionSummary>, ApiError> {
    app.sessions.session(session.key()).await?.map(Json).ok_or_else(|| no_such_session(session.key()))
}

/// What was said in a session, oldest first, in pages.
pub(crate) async fn messages(
    State(app): State<Shared>,
    session: VisibleSession,
    Params(params): Params<HistoryParams>,
) -> Result<Response, ApiError> {
    let key = session.into_key();
    let limit = check_limit(params.limit)?;
    let messages = app.sessions.history(&key, params.after.unwrap_or(0), limit).await?;
    if messages.is_empty() && app.sessions.session(&key).await?.is_none() {
        return Err(no_such_session(&key));
    }
    let next = if messages.len() >= limit as usize { messages.last().map(|line| line.id) } else { None };
    Ok(Json(History { messages, next }).into_response())
}
