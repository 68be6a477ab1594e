//! `POST /api/v1/files`.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use belay_protocol::{UPLOADS_KEPT_MS, UnixMillis};
use serde::Deserialize;
use serde_json::json;

use crate::app::Shared;
use crate::error::ApiError;
use crate::extract::{Caller, Params};
use crate::files;

/// The query parameters of an upload.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UploadParams {
    #[serde(default)]
    name: String,
}

/// Takes the body as a file. A message of the same principal can name it for 24 hours.
pub(crate) async fn upload(
    State(app): State<Shared>,
    Caller(principal): Caller,
    Params(params): Params<UploadParams>,
    request: Request,
) -> Result<Response, ApiError> {
    let upload = files::upload(&app, &principal, &params.name, request).await?;
    let expires_at = UnixMillis(app.clock.now().0.saturating_add(UPLOADS_KEPT_MS));
    let file = &upload.attachment;
    let body = json!({
        "file": upload.id, "name": file.name, "media_type": file.media_type, "bytes": file.bytes,
        "sha256": file.digest, "content": file.content.detail(), "expires_at": expires_at,
    });
    Ok((StatusCode::CREATED, Json(body)).into_response())
}
