//! `GET /api/v1/status`, `GET /metrics` and `POST /api/v1/shutdown`.

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use belay_protocol::{Ack, Control, Principal};
use belay_protocol::{CommandReply, StatusReport};
use serde::{Deserialize, Serialize};

use crate::app::{App, Shared};
use crate::error::ApiError;
use crate::extract::{Caller, Operator, OptionalBody};
use crate::parts::{BackupStatus, DatabaseLoss, Latency, Metrics};

/// An empty body: absent, or an object without fields.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// The status of the daemon, with that of its backups and its database.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DaemonStatus {
    #[serde(flatten)]
    report: StatusReport,
    /// The state of the backups, for operators; absent if the store is in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    backups: Option<BackupStatus>,
    /// The losses of committed transactions in the last 7 days, newest first; absent if there was none. They are those that
    /// were known at the start of the daemon.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    database_losses: Vec<DatabaseLoss>,
    /// Why the store accepts no write until the daemon has ended, for operators; absent if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    store_trouble: Option<String>,
}

/// Returns the status of the daemon.
pub(crate) async fn show(State(app): State<Shared>, Caller(principal): Caller) -> Result<Json<DaemonStatus>, ApiError> {
    daemon_status(&app, principal).await.map(Json)
}

/// The status of the daemon that the principal may see.
pub(crate) async fn daemon_status(app: &App, principal: Principal) -> Result<DaemonStatus, ApiError> {
    let backups = if principal.is_operator() { app.backups.status() } else { None };
    let database_losses = app.database_losses.clone();
    let store_trouble = app.health.trouble().filter(|_| principal.is_operator());
    Ok(DaemonStatus { report: *status_of(app, principal).await?, backups, database_losses, store_trouble })
}

/// The status of the daemon, with the running runs that the principal may see.
pub(crate) async fn status_of(app: &App, principal: Principal) -> Result<Box<StatusReport>, ApiError> {
    let mut report = match app.control(principal.clone(), Control::Status).await? {
        Ack::Status(report) => report,
        other => return Err(ApiError::unexpected(&other)),
    };
    let running = std::mem::take(&mut report.running);
    report.running = app.visibility(&principal).rows(running, |run| &run.session).await?;
    let processes = std::mem::take(&mut report.beside.processes);
    report.beside.processes = app.visibility(&principal).rows(processes, |process| &process.session).await?;
    Ok(report)
}

/// `GET /metrics`: the counters of this process, in the text format of Prometheus (version 0.0.4). A status request
/// makes the agent update its gauges. If the agent does not answer, they keep their last values. 404: the build has no
/// exporter.
pub(crate) async fn metrics(State(app): State<Shared>, Caller(principal): Caller) -> Result<Response, ApiError> {
    let metrics = exported(&app)?;
    crate::gauges::refresh(&app, principal).await;
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((kind, (metrics.render)()).into_response())
}

fn exported(app: &Shared) -> Result<&Metrics, ApiError> {
    let absent = "this build of Belay has no exporter for Prometheus (feature metrics); `belay --version --long` lists \
                  the parts of a build";
    app.metrics.as_ref().ok_or_else(|| ApiError::not_found(absent))
}

/// How long things took in the last day.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LatencyReport {
    latencies: Vec<Latency>,
}

/// `GET /api/v1/latency`: how long things took in each half hour of the last day, from counters in memory.
pub(crate) async fn latency(State(app): State<Shared>, Caller(_): Caller) -> Result<Json<LatencyReport>, ApiError> {
    Ok(Json(LatencyReport { latencies: (exported(&app)?.latencies)() }))
}

/// Drains and ends the daemon.
pub(crate) async fn shutdown(
    State(app): State<Shared>,
    Operator(principal): Operator,
    OptionalBody(Nothing {}): OptionalBody<Nothing>,
) -> Result<Json<CommandReply>, ApiError> {
    match app.control(principal, Control::Shutdown).await? {
        Ack::Command(reply) => Ok(Json(reply)),
        other => Err(ApiError::unexpected(&other)),
    }
}
