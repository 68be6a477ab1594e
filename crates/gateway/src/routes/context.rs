//! `GET /api/v1/sessions/{key}/context`: the context that the session's next model call would have.

use axum::Json;
use axum::extract::State;
use belay_protocol::{Ack, ContextReport, Control};
use serde::Deserialize;

use crate::app::Shared;
use crate::error::ApiError;
use crate::extract::{Caller, Params};
use crate::visibility::VisibleSession;

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ContextParams {
    /// Include the texts.
    #[serde(default)]
    full: bool,
}

/// Returns the report.
pub(crate) async fn show(
    State(app): State<Shared>,
    Caller(principal): Caller,
    session: VisibleSession,
    Params(ContextParams { full }): Params<ContextParams>,
) -> Result<Json<Box<ContextReport>>, ApiError> {
    match app.control(principal, Control::Context { session: session.into_key(), full }).await? {
        Ack::Context(report) => Ok(Json(report)),
        other => Err(ApiError::unexpected(&other)),
    }
}
