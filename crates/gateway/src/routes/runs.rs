//! `GET /api/v1/runs`, `/{id}`, `/{id}/wait` and `/{id}/trajectory`.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use belay_protocol::{IdPrefix, RunFilter, RunId, RunRecord, RunStatus, StopReason};
use serde::{Deserialize, Serialize};

use crate::app::Shared;
use crate::checks::{check_cursor, check_limit, no_such_run};
use crate::dates;
use crate::error::ApiError;
use crate::extract::{Caller, Params};
use crate::routes::compactions;
use crate::visibility::{VisibleRun, VisibleSession};
use crate::words::Words;

/// Default timeout of `wait`.
const WAIT_DEFAULT: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    session: Option<String>,
    /// Has one of these statuses: a comma list.
    status: Option<Words<RunStatus>>,
    /// Has ended for one of these reasons: a comma list.
    reason: Option<Words<StopReason>>,
    /// Accepted at this date or later.
    since: Option<String>,
    /// Accepted before this date.
    until: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// The length of a page.
    #[cfg_attr(test, schemars(range(min = 1, max = 500)))]
    limit: Option<u32>,
    /// A prefix of the id.
    id: Option<String>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitParams {
    timeout_ms: Option<u64>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RunList {
    runs: Vec<RunRecord>,
    /// The value of `after` for the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<RunId>,
}

/// Lists runs, newest first, in pages.
pub(crate) async fn list(
    State(app): State<Shared>,
    Caller(principal): Caller,
    Params(params): Params<ListParams>,
) -> Result<Response, ApiError> {
    let session = app.visibility(&principal).named_session("session", params.session.as_deref()).await?;
    let session = session.map(VisibleSession::into_key);
    let id = id_prefix(params.id.as_deref())?;
    let now = app.clock.now();
    let filter = RunFilter {
        id,
        session,
        statuses: Words::of(params.status),
        reasons: Words::of(params.reason),
        since: dates::optional("since", params.since.as_deref(), now)?,
        until: dates::optional("until", params.until.as_deref(), now)?,
        before: check_cursor(params.after.as_deref())?,
        limit: check_limit(params.limit)?,
    };
    let read = |limit| app.runs.runs(RunFilter { limit, ..filter.clone() });
    let visibility = app.visibility(&principal);
    let page = visibility.page(filter.limit, read, |run| &run.session, |run| run.run_id).await?;
    Ok(Json(RunList { runs: page.rows, next: page.next }).into_response())
}

/// Parses the prefix of an id, which filters a list.
pub(crate) fn id_prefix(text: Option<&str>) -> Result<Option<IdPrefix>, ApiError> {
    text.map(IdPrefix::parse).transpose().map_err(|what| ApiError::invalid(format!("id: {what}")))
}

/// Shows one run.
pub(crate) async fn show(State(app): State<Shared>, run: VisibleRun) -> Result<Json<RunRecord>, ApiError> {
    app.runs.run(run.id()).await?.map(Json).ok_or_else(|| no_such_run(run.id()))
}

/// Returns a run when it has ended or waits for approval, or its current record at the timeout.
pub(crate) async fn wait(
    State(app): State<Shared>,
    Caller(principal): Caller,
    run: VisibleRun,
    Params(params): Params<WaitParams>,
) -> Result<Json<Arc<RunRecord>>, ApiError> {
    let id = run.id();
    let limit = params.timeout_ms.map_or(WAIT_DEFAULT.min(app.config.max_wait()), Duration::from_millis);
    if limit > app.config.max_wait() {
        return Err(ApiError::invalid(format!("timeout_ms: at most {}", app.config.max_wait_ms)));
    }
    let watch = app.watch(principal, id, false).await?;
    app.wait_for_run(id, watch, limit).await?.map(Json).ok_or_else(|| no_such_run(id))
}

/// Returns the messages of a run as a recorded trajectory.
pub(crate) async fn trajectory(State(app): State<Shared>, run: VisibleRun) -> Result<Response, ApiError> {
    let id = run.id();
    if app.runs.run(id).await?.is_none() {
        return Err(no_such_run(id));
    }
    let messages = app.runs.run_messages(id).await?;
    let compactions = compactions::of_run(&*app.events, id).await?;
    let kind = [(CONTENT_TYPE, "application/jsonl; charset=utf-8")];
    Ok((kind, (app.trajectory)(&messages, &compactions)).into_response())
}
