//! `GET /api/v1/sessions`, `/{key}` and `/{key}/messages`.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use belay_protocol::{HistoryEntry, Principal, SessionFilter, SessionSummary};
use serde::{Deserialize, Serialize};

use crate::app::{App, Shared};
use crate::checks::{check_limit, no_such_session};
use crate::cursor;
use crate::dates;
use crate::error::ApiError;
use crate::extract::{Caller, Params};
use crate::visibility::{Page, VisibleSession};

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// Last used at this date or later.
    since: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// The length of a page.
    #[cfg_attr(test, schemars(range(min = 1, max = 500)))]
    limit: Option<u32>,
    /// Include ephemeral sessions.
    #[serde(default)]
    all: bool,
    /// List the hidden sessions instead of the others.
    #[serde(default)]
    hidden: bool,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct HistoryParams {
    after: Option<u64>,
    /// The length of the list.
    #[cfg_attr(test, schemars(range(min = 1, max = 500)))]
    limit: Option<u32>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SessionList {
    sessions: Vec<SessionSummary>,
    /// The value of `after` for the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct History {
    messages: Vec<HistoryEntry>,
    /// The value of `after` for the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

/// Lists sessions, most recently used first, in pages.
pub(crate) async fn list(
    State(app): State<Shared>,
    Caller(principal): Caller,
    Params(params): Params<ListParams>,
) -> Result<Response, ApiError> {
    let filter = SessionFilter {
        limit: check_limit(params.limit)?,
        ephemeral: params.all,
        hidden: params.hidden,
        since: dates::optional("since", params.since.as_deref(), app.clock.now())?,
        after: cursor::session(params.after.as_deref())?,
    };
    let Page { rows: sessions, next } = list_sessions(&app, &principal, filter).await?;
    Ok(Json(SessionList { sessions, next }).into_response())
}

/// A page of the sessions that this principal may see, most recently used first.
pub(crate) async fn list_sessions(
    app: &App,
    principal: &Principal,
    filter: SessionFilter,
) -> Result<Page<SessionSummary, String>, ApiError> {
    let read = |limit| app.sessions.sessions(SessionFilter { limit, ..filter.clone() });
    let visibility = app.visibility(principal);
    Ok(visibility.page(filter.limit, read, |session| &session.session, cursor::of_session).await?)
}

/// Shows one session.
pub(crate) async fn show(State(app): State<Shared>, session: VisibleSession) -> Result<Json<SessionSummary>, ApiError> {
    app.sessions.session(session.key()).await?.map(Json).ok_or_else(|| no_such_session(session.key()))
}

/// Lists the messages of a session, oldest first, in pages.
pub(crate) async fn messages(
    State(app): State<Shared>,
    session: VisibleSession,
    Params(params): Params<HistoryParams>,
) -> Result<Response, ApiError> {
    let key = session.into_key();
    let limit = check_limit(params.limit)?;
    let messages = app.sessions.history(&key, params.after.unwrap_or(0), limit.saturating_add(1)).await?;
    if messages.is_empty() && app.sessions.session(&key).await?.is_none() {
        return Err(no_such_session(&key));
    }
    let page = Page::cut(messages, limit, |line| line.id);
    Ok(Json(History { messages: page.rows, next: page.next }).into_response())
}
