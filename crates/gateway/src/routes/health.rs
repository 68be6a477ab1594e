//! Three health checks: the process is alive, it accepts a message now, it has accepted messages since the start.

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::app::{App, Shared};

/// Longest time for the store to confirm that it can write. 1 s: a slower store counts as not ready.
const PING_LIMIT: Duration = Duration::from_secs(1);

/// The answer of `/livez`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Live<'a> {
    /// Always true.
    live: bool,
    version: &'a str,
}

/// The answer of `/readyz`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Ready {
    ready: bool,
    /// Why no message would be accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

/// The answer of `/startupz`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Started {
    started: bool,
}

/// `GET /livez`: whether the process answers.
pub(crate) async fn live(State(app): State<Shared>) -> Response {
    Json(Live { live: true, version: &app.version }).into_response()
}

/// `GET /readyz`: whether a message would be accepted now.
pub(crate) async fn ready(State(app): State<Shared>) -> Response {
    let reason = not_ready_because(&app).await;
    let ready = reason.is_none();
    (status_of(ready), Json(Ready { ready, reason })).into_response()
}

/// `GET /startupz`: whether the agent has accepted messages at any time since the start.
pub(crate) async fn started(State(app): State<Shared>) -> Response {
    let started = *app.ready.borrow() || app.started.load(Ordering::Relaxed);
    (status_of(started), Json(Started { started })).into_response()
}

/// Why no message would be accepted now; `None`: one would.
pub(crate) async fn not_ready_because(app: &App) -> Option<&'static str> {
    if app.draining.is_cancelled() {
        return Some("shutting down");
    }
    if !*app.ready.borrow() {
        return Some("the agent does not take messages");
    }
    match tokio::time::timeout(PING_LIMIT, app.health.ping()).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => {
            tracing::warn!(%error, "the store cannot take a write");
            Some(match app.health.trouble() {
                Some(_) => "the files of the store were deleted, replaced or overwritten",
                None => "the store cannot take a write",
            })
        }
        Err(_elapsed) => Some("the store does not answer"),
    }
}

fn status_of(good: bool) -> StatusCode {
    if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}
