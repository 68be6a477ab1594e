//! `/api/v1/routine-runs`, `/api/v1/routines/{name}/runs` and `POST /api/v1/events`: past and future triggers of
//! routines.

use std::cmp::Reverse;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use belay_protocol::{Principal, RoutineRecord, RoutineRequest, RoutineRunFilter, RoutineRunRecord, RoutineRunStatus};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::routines::{find, trigger_runs};
use crate::app::{App, Shared};
use crate::checks::{KEY_MAX_BYTES, check_key, check_limit};
use crate::error::ApiError;
use crate::extract::{Caller, JsonBody, NamePath, Operator, Params, RoutineRunPath};
use crate::parts::RoutineTime;

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    routine: Option<String>,
    status: Option<RoutineRunStatus>,
    /// The length of the list.
    #[cfg_attr(test, schemars(range(min = 1, max = 500)))]
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnParams {
    status: Option<RoutineRunStatus>,
    /// The length of the list.
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

/// Lists routine runs, newest first.
pub(crate) async fn list(
    State(app): State<Shared>,
    Caller(principal): Caller,
    Params(params): Params<ListParams>,
) -> Result<Response, ApiError> {
    let (routine, limit) = (params.routine, check_limit(params.limit)?);
    let filter = RoutineRunFilter { routine, routine_id: None, status: params.status, limit };
    routine_runs(&app, &principal, filter).await
}

/// Lists the routine runs of a routine, newest first. An operator also sees those of earlier routines with the same
/// name.
pub(crate) async fn of_routine(
    State(app): State<Shared>,
    Caller(principal): Caller,
    NamePath(name): NamePath,
    Params(params): Params<OwnParams>,
) -> Result<Response, ApiError> {
    let (routine, limit) = (Some(name), check_limit(params.limit)?);
    let filter = RoutineRunFilter { routine, routine_id: None, status: params.status, limit };
    routine_runs(&app, &principal, filter).await
}

async fn routine_runs(app: &App, principal: &Principal, filter: RoutineRunFilter) -> Result<Response, ApiError> {
    let routine_runs = match app.visibility(principal).own_only() {
        None => {
            let routine_runs = app.routines.routine_runs(filter.clone()).await?;
            if let (true, Some(name)) = (routine_runs.is_empty(), &filter.routine) {
                find(app, principal, name).await?; // a mistyped name must not look like a routine without runs
            }
            routine_runs
        }
        Some(_) => own_routine_runs(app, principal, filter).await?,
    };
    Ok(Json(RoutineRunList { routine_runs }).into_response())
}

/// Lists the runs of the principal's own routines, newest first.
async fn own_routine_runs(
    app: &App,
    principal: &Principal,
    filter: RoutineRunFilter,
) -> Result<Vec<RoutineRunRecord>, ApiError> {
    let mut routines = match &filter.routine {
        Some(name) => vec![find(app, principal, name).await?],
        None => app.routines.routines().await?,
    };
    let visibility = app.visibility(principal);
    routines.retain(|routine| visibility.routine(routine));
    let mut routine_runs = Vec::new();
    for routine in routines {
        let RoutineRecord { routine_id, spec, .. } = routine;
        let of_this = RoutineRunFilter { routine: Some(spec.name), routine_id: Some(routine_id), ..filter.clone() };
        routine_runs.extend(app.routines.routine_runs(of_this).await?);
        // One routine never needs more than the limit of all. So at most one page and one routine's runs are in memory.
        routine_runs.sort_by_key(|routine_run| Reverse((routine_run.claimed_at, routine_run.routine_run_id)));
        routine_runs.truncate(filter.limit as usize);
    }
    Ok(routine_runs)
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
            Err(problem) if params.routine.is_some() => return Err(ApiError::invalid(problem)),
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
    Ok(Json(RoutineRunList { routine_runs: trigger_runs(&app, principal, request).await? }).into_response())
}
