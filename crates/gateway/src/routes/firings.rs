//! `/api/v1/firings`, `/api/v1/routines/{name}/runs` and `POST /api/v1/events`: what has set routines off, and what will.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use belay_protocol::{FiringFilter, FiringRecord, FiringStatus, RoutineRecord, RoutineRequest};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::messages::check_key;
use super::routines::{find, fired};
use super::runs::check_limit;
use crate::app::{App, Shared};
use crate::error::ApiError;
use crate::extract::{Caller, FiringPath, JsonBody, NamePath, Params};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    routine: Option<String>,
    status: Option<FiringStatus>,
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnParams {
    status: Option<FiringStatus>,
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NextParams {
    /// Of this one only.
    routine: Option<String>,
    count: Option<u32>,
}

/// Something that another part of the operator's systems says has happened.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Happened {
    source: String,
    event: String,
    /// What makes a second telling recognisable.
    key: Option<String>,
    #[serde(default)]
    payload: serde_json::Map<String, Value>,
}

#[derive(Serialize)]
struct FiringList {
    firings: Vec<FiringRecord>,
}

/// Firings, newest first.
pub(crate) async fn list(State(app): State<Shared>, Params(params): Params<ListParams>) -> Result<Response, ApiError> {
    firings(&app, params.routine, params.status, params.limit).await
}

/// The firings of a routine, newest first; also of one that was deleted since.
pub(crate) async fn of_routine(
    State(app): State<Shared>,
    NamePath(name): NamePath,
    Params(params): Params<OwnParams>,
) -> Result<Response, ApiError> {
    firings(&app, Some(name), params.status, params.limit).await
}

async fn firings(
    app: &App,
    routine: Option<String>,
    status: Option<FiringStatus>,
    limit: Option<u32>,
) -> Result<Response, ApiError> {
    let filter = FiringFilter { routine: routine.clone(), status, limit: check_limit(limit)? };
    let firings = app.routines.firings(filter).await?;
    if let (true, Some(name)) = (firings.is_empty(), routine) {
        find(app, &name).await?; // a mistyped name must not look like a routine that is silent
    }
    Ok(Json(FiringList { firings }).into_response())
}

/// One firing.
pub(crate) async fn show(
    State(app): State<Shared>,
    FiringPath(id): FiringPath,
) -> Result<Json<FiringRecord>, ApiError> {
    let firing = app.routines.firing(id).await?;
    firing.map(Json).ok_or_else(|| ApiError::not_found(format!("no such firing: {id}")))
}

/// What fires next, guardrails aside: of every routine that is on, or of one.
pub(crate) async fn next(State(app): State<Shared>, Params(params): Params<NextParams>) -> Result<Response, ApiError> {
    let count = check_limit(Some(params.count.unwrap_or(10)))? as usize;
    let mut routines = match &params.routine {
        Some(name) => vec![find(&app, name).await?],
        None => app.routines.routines().await?,
    };
    // The first so many times are times of those that are first.
    routines.retain(|routine| routine.next_at.is_some());
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
        for (at, mut time) in next {
            if let Some(time) = time.as_object_mut() {
                time.insert("routine".into(), json!(spec.name));
            }
            times.push((at, time));
        }
    }
    times.sort_by_key(|(at, _)| *at);
    let next: Vec<Value> = times.into_iter().take(count).map(|(_, time)| time).collect();
    Ok(Json(json!({ "next": next })).into_response())
}

/// Says that something has happened, and answers what it has set off.
pub(crate) async fn emit(
    State(app): State<Shared>,
    caller: Caller,
    JsonBody(happened): JsonBody<Happened>,
) -> Result<Response, ApiError> {
    let principal = caller.operator()?;
    let Happened { source, event, key, payload } = happened;
    for (field, word) in [("source", &source), ("event", &event)] {
        if word.trim().is_empty() || word.len() > super::messages::KEY_MAX_BYTES {
            return Err(ApiError::invalid(format!("{field}: must be a word of 1 to 256 bytes")));
        }
    }
    if let Some(key) = &key {
        check_key(key).map_err(|e| ApiError::invalid(format!("key: {e}")))?;
    }
    let request = RoutineRequest::Emit { source, event, key, payload: Value::Object(payload) };
    Ok(Json(FiringList { firings: fired(&app, principal, request).await? }).into_response())
}
