//! Three different questions: does it live, can it take a message now, has it ever.

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::app::{App, Shared};

/// Longest time the store may take to say that it can take a write. 1 s: an answer slower than that is a no.
const PING_LIMIT: Duration = Duration::from_secs(1);

/// `GET /livez`: whether the process answers at all.
pub(crate) async fn live(State(app): State<Shared>) -> Response {
    Json(json!({ "live": true, "version": app.version })).into_response()
}

/// `GET /readyz`: whether a message would be accepted now.
pub(crate) async fn ready(State(app): State<Shared>) -> Response {
    let reason = not_ready_because(&app).await;
    let body = match reason {
        None => json!({ "ready": true }),
        Some(reason) => json!({ "ready": false, "reason": reason }),
    };
    (status_of(reason.is_none()), Json(body)).into_response()
}

/// `GET /startupz`: whether a message could ever be accepted since the start.
pub(crate) async fn started(State(app): State<Shared>) -> Response {
    let started = *app.ready.borrow() || app.started.load(Ordering::Relaxed);
    (status_of(started), Json(json!({ "started": started }))).into_response()
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
            Some("the store cannot take a write")
        }
        Err(_elapsed) => Some("the store does not answer"),
    }
}

fn status_of(good: bool) -> StatusCode {
    if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}
