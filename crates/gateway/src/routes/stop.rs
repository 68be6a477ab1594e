//! The brakes: stop a run, a session, everything.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use belay_protocol::{Ack, Control, Principal, RunId, StopReport, StopTarget};
use serde::Deserialize;
use tokio::time::Instant;

use super::runs::no_such_run;
use super::status::Nothing;
use crate::app::{App, Shared};
use crate::error::ApiError;
use crate::extract::{Caller, OptionalBody, Params, RunPath, SessionPath};

/// Longest time a stop may wait for its last process.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Pause between two looks at what still runs.
const POLL: Duration = Duration::from_millis(25);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StopParams {
    wait_ms: Option<u64>,
}

impl StopParams {
    fn wait(&self) -> Result<Duration, ApiError> {
        match Duration::from_millis(self.wait_ms.unwrap_or(0)) {
            wait if wait <= WAIT_MAX => Ok(wait),
            _ => Err(ApiError::invalid(format!("wait_ms: at most {}", WAIT_MAX.as_millis()))),
        }
    }
}

/// Stops one run.
pub(crate) async fn run(
    State(app): State<Shared>,
    Caller(principal): Caller,
    RunPath(id): RunPath,
    Params(params): Params<StopParams>,
    OptionalBody(Nothing {}): OptionalBody<Nothing>,
) -> Result<Json<StopReport>, ApiError> {
    stop_run(&app, principal, id, params.wait()?).await.map(Json)
}

/// Stops that run, and waits so long for what of it still ends.
///
/// # Errors
/// There is no such run, or the agent does not answer.
pub(crate) async fn stop_run(
    app: &App,
    principal: Principal,
    id: RunId,
    wait: Duration,
) -> Result<StopReport, ApiError> {
    let report = stop(app, principal, StopTarget::Run(id), wait).await?;
    // Nothing to stop: it has ended before, or never was.
    if report.stopped.is_empty() && report.still_running.is_empty() && app.runs.run(id).await?.is_none() {
        return Err(no_such_run(id));
    }
    Ok(report)
}

/// Stops the running turn of a session and clears its queue.
pub(crate) async fn session(
    State(app): State<Shared>,
    Caller(principal): Caller,
    SessionPath(key): SessionPath,
    Params(params): Params<StopParams>,
    OptionalBody(Nothing {}): OptionalBody<Nothing>,
) -> Result<Json<StopReport>, ApiError> {
    let report = stop(&app, principal, StopTarget::Session(key.clone()), params.wait()?).await?;
    if report == StopReport::default() && app.runs.session(&key).await?.is_none() {
        // A mistyped brake must not look like one that worked.
        return Err(ApiError::not_found("no such session"));
    }
    Ok(Json(report))
}

/// Stops everything.
pub(crate) async fn all(
    State(app): State<Shared>,
    caller: Caller,
    Params(params): Params<StopParams>,
    OptionalBody(Nothing {}): OptionalBody<Nothing>,
) -> Result<Json<StopReport>, ApiError> {
    stop(&app, caller.operator()?, StopTarget::All, params.wait()?).await.map(Json)
}

/// Stops, and asks again until nothing is left or the time is up.
async fn stop(app: &App, principal: Principal, target: StopTarget, wait: Duration) -> Result<StopReport, ApiError> {
    let deadline = Instant::now() + wait;
    let mut report = stop_now(app, &principal, &target).await?;
    while !report.still_running.is_empty() && Instant::now() < deadline {
        tokio::time::sleep_until(deadline.min(Instant::now() + POLL)).await;
        let again = stop_now(app, &principal, &target).await?;
        report.still_running = again.still_running;
        for run in again.stopped {
            if !report.stopped.contains(&run) {
                report.stopped.push(run);
            }
        }
    }
    Ok(report)
}

/// Stops, and says what has ended at once, or within a moment.
pub(crate) async fn stop_now(app: &App, principal: &Principal, target: &StopTarget) -> Result<StopReport, ApiError> {
    match app.control(principal.clone(), Control::Stop(target.clone())).await? {
        Ack::Stopped(report) => Ok(report),
        other => Err(ApiError::unexpected(&other)),
    }
}
