//! `GET /api/v1/heartbeat`: how the heartbeat stands, and what it would do now. By hand it beats like every routine is fired:
//! `POST /api/v1/routines/heartbeat/fire`.

use axum::Json;
use axum::extract::State;
use belay_protocol::{Ack, Control, HeartbeatReport, RoutineAnswer, RoutineRequest};

use crate::app::Shared;
use crate::error::ApiError;
use crate::extract::Operator;

/// How it stands.
pub(crate) async fn show(
    State(app): State<Shared>,
    Operator(principal): Operator,
) -> Result<Json<Box<HeartbeatReport>>, ApiError> {
    match app.control(principal, Control::Routine(Box::new(RoutineRequest::Heartbeat))).await? {
        Ack::Routine(RoutineAnswer::Heartbeat(report)) => Ok(Json(report)),
        other => Err(ApiError::unexpected(&other)),
    }
}
