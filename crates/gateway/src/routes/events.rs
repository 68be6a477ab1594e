//! `GET /api/v1/events` and `GET /api/v1/runs/{id}/events`: facts as they are committed, replayed from any number.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use belay_protocol::Seq;
use serde::Deserialize;

use super::runs::no_such_run;
use crate::app::Shared;
use crate::error::ApiError;
use crate::extract::{Caller, Params, RunPath};
use crate::sse::{Feed, RunFeed, as_response};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventParams {
    since: Option<String>,
}

/// All facts, without end. Without a number to go on from: those from now on.
pub(crate) async fn all(
    State(app): State<Shared>,
    Params(params): Params<EventParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let after = cursor(&headers, params)?;
    let permit = app.stream_place()?;
    let after = after.unwrap_or_else(|| *app.events.tip().borrow());
    let feed = Feed::new(app.events.clone(), after, None, app.draining.clone(), permit);
    Ok(as_response(feed).into_response())
}

/// The facts of one run, to its end; the fragments of its answer while it is alive.
pub(crate) async fn of_run(
    State(app): State<Shared>,
    Caller(principal): Caller,
    RunPath(id): RunPath,
    Params(params): Params<EventParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let after = cursor(&headers, params)?.unwrap_or_default();
    let permit = app.stream_place()?;
    let watch = app.watch(principal, id, true).await?;
    let over = match &watch {
        Some(_) => false,
        None => app.runs.run(id).await?.ok_or_else(|| no_such_run(id))?.status.is_end(),
    };
    let run = RunFeed::new(id, watch, over);
    let feed = Feed::new(app.events.clone(), after, Some(run), app.draining.clone(), permit);
    Ok(as_response(feed).into_response())
}

/// Where to go on from: the header that browsers send when they reconnect, or the parameter.
pub(super) fn cursor(headers: &HeaderMap, params: EventParams) -> Result<Option<Seq>, ApiError> {
    let text = match headers.get("last-event-id") {
        Some(id) => Some(id.to_str().unwrap_or("?").to_owned()),
        None => params.since,
    };
    let number = text.filter(|text| !text.is_empty()).map(|text| text.trim().parse::<u64>()).transpose();
    number
        .map(|number| number.map(Seq))
        .map_err(|_| ApiError::bad_request("bad_event_id", "Last-Event-ID and since take the number of an event"))
}
