//! `/api/v1/routine-runs`, `/api/v1/routines/{name}/runs` and `POST /api/v1/events`: past and future triggers of
//! routines.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use belay_protocol::{
    Principal, RoutineId, RoutineRecord, RoutineRequest, RoutineRunFilter, RoutineRunId, RoutineRunRecord,
    RoutineRunStatus,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::routines::{find, trigger_runs};
use crate::app::{App, Shared};
use crate::checks::{KEY_MAX_BYTES, check_cursor, check_key, check_limit};
use crate::dates;
use crate::error::ApiError;
use crate::extract::{Caller, JsonBody, NamePath, Operator, Params, RoutineRunPath};
use crate::parts::RoutineTime;
use crate::visibility::Page;

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    routine: Option<String>,
    status: Option<RoutineRunStatus>,
    /// Claimed at this date or later.
    since: Option<String>,
    /// Claimed before this date.
    until: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// The length of a page.
    #[cfg_attr(test, schemars(range(min = 1, max = 500)))]
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnParams {
    status: Option<RoutineRunStatus>,
    /// Claimed at this date or later.
    since: Option<String>,
    /// Claimed before this date.
    until: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// The length of a page.
    #[cfg_attr(test, schemars(range(min = 1, max = 500)))]
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct NextParams {
    /// Only of this routine.
    routine: Option<String>,
    count: Option<u32>,
}

/// An event that another of the operator's systems reports.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportedEvent {
    source: String,
    event: String,
    /// Makes a repeated report recognisable.
    key: Option<String>,
    #[serde(default)]
    payload: serde_json::Map<String, Value>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RoutineRunList {
    routine_runs: Vec<RoutineRunRecord>,
    /// The value of `after` for the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<RoutineRunId>,
}

/// A scheduled time of a routine.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NextRun {
    routine: String,
    #[serde(flatten)]
    time: RoutineTime,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NextRuns {
    next: Vec<NextRun>,
}

/// Lists routine runs, newest first, in pages.
pub(crate) async fn list(
    State(app): State<Shared>,
    Caller(principal): Caller,
    Params(params): Params<ListParams>,
) -> Result<Response, ApiError> {
    let ListParams { routine, status, since, until, after, limit } = params;
    list_page(&app, &principal, routine, OwnParams { status, since, until, after, limit }).await
}

/// Lists the routine runs of a routine, newest first, in pages. An operator also sees those of earlier routines with
/// the same name.
pub(crate) async fn of_routine(
    State(app): State<Shared>,
    Caller(principal): Caller,
    NamePath(name): NamePath,
    Params(params): Params<OwnParams>,
) -> Result<Response, ApiError> {
    list_page(&app, &principal, Some(name), params).await
}

/// A page of the routine runs that the principal may see.
async fn list_page(
    app: &App,
    principal: &Principal,
    routine: Option<String>,
    params: OwnParams,
) -> Result<Response, ApiError> {
    let (now, limit) = (app.clock.now(), check_limit(params.limit)?);
    let filter = RoutineRunFilter {
        routine_ids: own_routines(app, principal, routine.as_deref()).await?,
        routine,
        status: params.status,
        since: dates::optional("since", params.since.as_deref(), now)?,
        until: dates::optional("until", params.until.as_deref(), now)?,
        before: check_cursor(params.after.as_deref())?,
        limit: limit.saturating_add(1),
    };
    let routine_runs = app.routines.routine_runs(filter.clone()).await?;
    if let (true, Some(name)) = (routine_runs.is_empty(), &filter.routine) {
        find(app, principal, name).await?; // a mistyped name must not look like a routine without runs
    }
    let page = Page::cut(routine_runs, limit, |routine_run| routine_run.routine_run_id);
    Ok(Json(RoutineRunList { routine_runs: page.rows, next: page.next }).into_response())
}

/// The ids of the principal's own routines, or of the one with this name; `None`: the principal sees all routine runs.
async fn own_routines(
    app: &App,
    principal: &Principal,
    name: Option<&str>,
) -> Result<Option<Vec<RoutineId>>, ApiError> {
    let visibility = app.visibility(principal);
    if visibility.own_only().is_none() {
        return Ok(None);
    }
    let mut routines = match name {
        Some(name) => vec![find(app, principal, name).await?],
        None => app.routines.routines().await?,
    };
    routines.retain(|routine| visibility.routine(routine));
    Ok(Some(routines.iter().map(|routine| routine.routine_id).collect()))
}

/// Shows one routine run.
pub(crate) async fn show(
    State(app): State<Shared>,
    Caller(principal): Caller,
    RoutineRunPath(id): RoutineRunPath,
) -> Result<Json<RoutineRunRecord>, ApiError> {
    match app.routines.routine_run(id).await? {
        Some(routine_run) if app.visibility(&principal).routine_run(&routine_run).await? => Ok(Json(routine_run)),
        _ => Err(ApiError::not_found(format!("no such routine run: {id}"))),
    }
}

/// Lists the next trigger times, guardrails aside: of every enabled routine, or of one.
pub(crate) async fn next(
    State(app): State<Shared>,
    Caller(principal): Caller,
    Params(params): Params<NextParams>,
) -> Result<Response, ApiError> {
    let count = check_limit(Some(params.count.unwrap_or(10)))? as usize;
    let mut routines = match &params.routine {
        Some(name) => vec![find(&app, &principal, name).await?],
        None => app.routines.routines().await?,
    };
    // The first `count` times belong to the first `count` routines.
    routines.retain(|routine| routine.next_at.is_some() && app.visibility(&principal).routine(routine));
    routines.sort_by_key(|routine| routine.next_at);
    routines.truncate(count);
    let mut times = Vec::new();
    for RoutineRecord { spec, .. } in &routines {
        let next = match app.times.next(spec, app.clock.now(), count) {
            Ok(next) => next,
            Err(problem) if params.routine.is_some() => return Err(ApiError::invalid(problem).about("routine")),
            Err(problem) => {
                tracing::warn!(routine = spec.name, problem, "a routine cannot be read; it is left out of a list");
                continue;
            }
        };
        times.extend(next.into_iter().map(|time| NextRun { routine: spec.name.clone(), time }));
    }
    times.sort_by_key(|next| next.time.at);
    times.truncate(count);
    Ok(Json(NextRuns { next: times }).into_response())
}

/// Reports an event, and returns the routine runs that it has triggered.
pub(crate) async fn emit(
    State(app): State<Shared>,
    Operator(principal): Operator,
    JsonBody(reported): JsonBody<ReportedEvent>,
) -> Result<Response, ApiError> {
    let ReportedEvent { source, event, key, payload } = reported;
    for (field, word) in [("source", &source), ("event", &event)] {
        if word.trim().is_empty() || word.len() > KEY_MAX_BYTES {
            return Err(ApiError::invalid(format!("{field}: must be a word of 1 to 256 bytes")));
        }
    }
    if let Some(key) = &key {
        check_key(key).map_err(|e| ApiError::invalid(format!("key: {e}")))?;
    }
    let request = RoutineRequest::Emit { source, event, key, payload: Value::Object(payload) };
    Ok(Json(RoutineRunList { routine_runs: trigger_runs(&app, principal, request).await?, next: None }).into_response())
}
