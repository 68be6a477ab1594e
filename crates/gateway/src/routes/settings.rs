//! `GET /api/v1/settings`: the merged settings with their origins, and the problems of the settings files.

use axum::Json;
use axum::extract::State;
use tokio::task::spawn_blocking;

use crate::app::Shared;
use crate::error::ApiError;
use crate::extract::Operator;
use crate::parts::SettingsReport;

/// Reads the settings files anew. Possible secrets are masked.
pub(crate) async fn show(State(app): State<Shared>, Operator(_): Operator) -> Result<Json<SettingsReport>, ApiError> {
    let settings = app.settings.clone();
    spawn_blocking(move || settings()).await.map(Json).map_err(|_panicked| ApiError::internal())
}
