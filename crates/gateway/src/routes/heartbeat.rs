//! `GET /api/v1/heartbeat`: the state of the heartbeat, and what it would do now. It is started by hand like every
//! routine: `POST /api/v1/routines/heartbeat/fire`.

use axum::Json;
use axum::extract::State;
use belay_protocol::{Ack, Control, HeartbeatReport, RoutineAnswer, RoutineRequest};

use crate::app::Shared;
use crate::error::ApiError;
use crate::extract::Operator;

/// Returns the state of the heartbeat.
pub(crate) async fn show(
    State(app): State<Shared>,
    Operator(principal): Operator,
) -> Result<Json<Box<HeartbeatReport>>, ApiError> {
    match app.control(principal, Control::Routine(Box::new(RoutineRequest::Heartbeat))).await? {
        Ack::Routine(RoutineAnswer::Heartbeat(report)) => Ok(Json(report)),
        other => Err(ApiError::unexpected(&other)),
    }
}
