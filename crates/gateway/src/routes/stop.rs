//! Stops a run, a session, or everything.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use belay_protocol::{Ack, Control, OrderId, Principal, RunId, RunStatus, StopReport, StopTarget};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::status::Nothing;
use crate::app::{App, Shared};
use crate::checks::no_such_run;
use crate::error::ApiError;
use crate::extract::{Caller, Operator, OptionalBody, Params};
use crate::visibility::{VisibleRun, VisibleSession};

/// Longest time that a stop may wait for its last process.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Pause between two checks of what still runs.
const POLL: Duration = Duration::from_millis(25);

/// What to stop. A principal can name only visible runs and sessions.
pub(crate) enum Stop {
    /// One run.
    Run(VisibleRun),
    /// The running turn and the queue of a session.
    Session(VisibleSession),
    /// Everything.
    All,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    run: VisibleRun,
    Params(params): Params<StopParams>,
    OptionalBody(Nothing {}): OptionalBody<Nothing>,
) -> Result<Json<StopReport>, ApiError> {
    stop_run(&app, principal, run, params.wait()?).await.map(Json)
}

/// Stops a run, and waits up to `wait` for its remaining processes.
///
/// # Errors
/// There is no such run, or the agent does not answer.
pub(crate) async fn stop_run(
    app: &App,
    principal: Principal,
    run: VisibleRun,
    wait: Duration,
) -> Result<StopReport, ApiError> {
    let id = run.id();
    let report = stop(app, principal, Stop::Run(run), wait).await?;
    // Nothing to stop: the run has ended before or never existed.
    if report.stopped.is_empty() && report.still_running.is_empty() && app.runs.run(id).await?.is_none() {
        return Err(no_such_run(id));
    }
    Ok(report)
}

/// Stops the running turn of a session and clears its queue.
pub(crate) async fn session(
    State(app): State<Shared>,
    Caller(principal): Caller,
    session: VisibleSession,
    Params(params): Params<StopParams>,
    OptionalBody(Nothing {}): OptionalBody<Nothing>,
) -> Result<Json<StopReport>, ApiError> {
    let report = stop(&app, principal, Stop::Session(session.clone()), params.wait()?).await?;
    if report == StopReport::default() && app.sessions.session(session.key()).await?.is_none() {
        // A stop of a mistyped name must not look like a success.
        return Err(ApiError::not_found("no such session"));
    }
    Ok(Json(report))
}

/// Stops everything.
pub(crate) async fn all(
    State(app): State<Shared>,
    Operator(principal): Operator,
    Params(params): Params<StopParams>,
    OptionalBody(Nothing {}): OptionalBody<Nothing>,
) -> Result<Json<StopReport>, ApiError> {
    stop(&app, principal, Stop::All, params.wait()?).await.map(Json)
}

/// Stops, and repeats the stop until nothing is left or the time is up. For other nodes of a cluster it is one stop, since
/// the repetitions have the id of one order.
async fn stop(app: &App, principal: Principal, target: Stop, wait: Duration) -> Result<StopReport, ApiError> {
    let deadline = Instant::now() + wait;
    let order = (!wait.is_zero()).then(OrderId::new);
    let mut report = request(app, &principal, &target, order).await?;
    let mut ending: BTreeSet<RunId> = report.still_running.iter().map(|still| still.run_id).collect();
    while !(report.still_running.is_empty() && report.pending_nodes.is_empty()) && Instant::now() < deadline {
        tokio::time::sleep_until(deadline.min(Instant::now() + POLL)).await;
        let Ok(again) = timeout_at(deadline, request(app, &principal, &target, order)).await else { break };
        let again = again?;
        ending.extend(again.still_running.iter().map(|still| still.run_id));
        (report.still_running, report.pending_nodes) = (again.still_running, again.pending_nodes);
        for run in again.stopped {
            if !report.stopped.contains(&run) {
                report.stopped.push(run);
            }
        }
    }
    add_ended(app, &mut report, ending, deadline + POLL).await;
    Ok(report)
}

/// Adds the runs whose end was recorded between two requests: the second one finds nothing of them. A store that does not answer
/// costs their names alone, since the stop was carried out.
async fn add_ended(app: &App, report: &mut StopReport, mut ending: BTreeSet<RunId>, deadline: Instant) {
    let known = report.stopped.iter().chain(report.still_running.iter().map(|still| &still.run_id));
    known.for_each(|run| {
        ending.remove(run);
    });
    for id in ending {
        let record = timeout_at(deadline, app.runs.run(id)).await;
        if matches!(&record, Ok(Ok(Some(run))) if run.status == RunStatus::Stopped) {
            report.stopped.push(id);
        }
    }
}

/// Stops, and waits as long as a stop may for the ends. It answers at once if all has ended.
pub(crate) async fn stop_and_wait(app: &App, principal: Principal, target: Stop) -> Result<StopReport, ApiError> {
    stop(app, principal, target, WAIT_MAX).await
}

/// Asks the agent for a stop. `order`: the id of a stop that is repeated.
async fn request(
    app: &App,
    principal: &Principal,
    target: &Stop,
    order: Option<OrderId>,
) -> Result<StopReport, ApiError> {
    let target = match target {
        Stop::Run(run) => StopTarget::Run(run.id()),
        Stop::Session(session) => StopTarget::Session(session.key().clone()),
        Stop::All => StopTarget::All,
    };
    match app.repeated_control(principal.clone(), Control::Stop(target), order).await? {
        Ack::Stopped(report) => Ok(report),
        other => Err(ApiError::unexpected(&other)),
    }
}
