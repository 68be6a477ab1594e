//! `POST /api/v1/files` and `GET /api/v1/files/{token}`.

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use belay_protocol::attachment::BlobDigest;
use belay_protocol::{UPLOADS_KEPT_MS, UnixMillis, UploadId};
use serde::{Deserialize, Serialize};

use crate::app::Shared;
use crate::error::ApiError;
use crate::extract::{Caller, Params};
use crate::file_links::{self, LinkRefusal};
use crate::files;

/// The query parameters of an upload.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct UploadParams {
    #[serde(default)]
    name: String,
}

/// A stored upload.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct UploadedFile<'a> {
    /// The id: a message of the same principal can name it.
    file: UploadId,
    name: &'a str,
    /// Found by the content.
    media_type: &'a str,
    bytes: u64,
    sha256: &'a BlobDigest,
    /// What a model gets of it.
    content: &'a str,
    /// When it is deleted, unless a message has named it.
    expires_at: UnixMillis,
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
    let body = UploadedFile {
        file: upload.id,
        name: &file.name,
        media_type: &file.media_type,
        bytes: file.bytes,
        sha256: &file.digest,
        content: file.content.detail(),
        expires_at,
    };
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

/// Serves a sent file. The token is the permission.
pub(crate) async fn download(State(app): State<Shared>, Path(token): Path<String>) -> Result<Response, ApiError> {
    let (run, id) = app.links.open(&token).map_err(|refusal| match refusal {
        LinkRefusal::Forged => ApiError::not_found("no such file"),
        LinkRefusal::Expired => ApiError::gone("the link has expired; read the run again for a new one"),
    })?;
    let deleted = || ApiError::gone("the file was deleted with its conversation");
    let record = app.runs.run(run).await?.ok_or_else(deleted)?;
    let file = record.files.into_iter().find(|file| file.id == id).ok_or_else(deleted)?;
    let bytes = app.blobs.stream(&file.sha256).await?.ok_or_else(deleted)?;
    Ok(file_links::response(&file, bytes))
}
