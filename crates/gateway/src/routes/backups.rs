//! `/api/v1/backups`: making and listing backups.

use axum::Json;
use axum::extract::{Extension, State};
use serde_json::Value;

use crate::app::Shared;
use crate::error::ApiError;
use crate::extract::{Operator, OptionalBody};
use crate::parts::{BackupRefusal, BackupRequest};
use crate::peer::Peer;

/// Lists the backups, with the next scheduled one and the last failure.
pub(crate) async fn list(State(app): State<Shared>, _: Operator) -> Result<Json<Value>, ApiError> {
    app.backups.list().await.map(Json).map_err(refused)
}

/// Makes a backup. Answered when it is verified. Only the control socket may name a place: its user can write there
/// anyway.
pub(crate) async fn create(
    State(app): State<Shared>,
    _: Operator,
    Extension(peer): Extension<Peer>,
    OptionalBody(request): OptionalBody<BackupRequest>,
) -> Result<Json<Value>, ApiError> {
    if request.to.is_some() && matches!(peer, Peer::Tcp(_)) {
        return Err(ApiError::forbidden(
            "to: only the control socket may name a place; without it, backup.dir is used",
        ));
    }
    app.backups.create(request).await.map(Json).map_err(refused)
}

fn refused(refusal: BackupRefusal) -> ApiError {
    match refusal {
        BackupRefusal::Busy => ApiError::busy("another backup is being made"),
        BackupRefusal::Invalid(problem) => ApiError::invalid(problem),
        BackupRefusal::ShuttingDown => ApiError::shutting_down(),
        BackupRefusal::Failed(problem) => ApiError::backup_failed(problem),
    }
}
