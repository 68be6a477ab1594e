//! `POST /hooks/{path}`: other programs trigger routines, each with a secret of its own.
//!
//! A program that knows the secret is always served, whatever came from its address before: behind a proxy, a stranger
//! and a real caller have the same address. A caller without the secret, after ten attempts in a minute, learns only
//! that there were too many.

use aws_lc_rs::digest::{SHA256, digest};
use axum::Json;
use axum::extract::{Request, State};
use axum::http::HeaderName;
use axum::response::{IntoResponse, Response};
use belay_protocol::routine::ROUTINE_TEXT_MAX_BYTES;
use belay_protocol::{RoutineRequest, RoutineRunId, RoutineRunRecord, RoutineRunStatus, Trigger};
use serde::Serialize;
use subtle::ConstantTimeEq;

use super::routines::trigger_runs;
use super::webhook::from_hex;
use crate::app::{App, Shared};
use crate::checks::check_key;
use crate::entry::Entry;
use crate::error::{ApiError, ErrorCode};
use crate::extract::{NamePath, read_body};
use crate::peer::Peer;

/// The header with the secret.
pub(crate) const SECRET_HEADER: HeaderName = HeaderName::from_static("x-webhook-secret");

/// The header with the id of a delivery, so that a repeated delivery is recognised.
pub(crate) const DELIVERY_HEADER: HeaderName = HeaderName::from_static("x-delivery-id");

/// The routine run that a delivery has triggered.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TriggeredRoutine<'a> {
    routine_run_id: RoutineRunId,
    routine: &'a str,
    status: RoutineRunStatus,
}

/// Triggers the routine, once for each delivery: a repeated delivery gets the same routine run. A delivery without an
/// id is recognised by its body, for a minute.
pub(crate) async fn receive(
    State(app): State<Shared>,
    NamePath(path): NamePath,
    request: Request,
) -> Result<Response, ApiError> {
    let peer = request.extensions().get::<Peer>().copied();
    let Some(secret) = request.headers().get(SECRET_HEADER) else {
        return Err(ApiError::forbidden("the header X-Webhook-Secret is missing"));
    };
    let name = match routine(&app, &path, secret.as_bytes()).await? {
        Ok(name) => name,
        Err(refused) => return Err(app.wrong_secrets.refuse(peer, refused).await),
    };
    let delivery = match request.headers().get(DELIVERY_HEADER).map(|id| id.to_str().unwrap_or_default()) {
        Some(id) => Some(check_key(id).map_err(|e| ApiError::invalid(format!("X-Delivery-Id: {e}")))?.to_owned()),
        None => None,
    };
    let body = read_body(request, ROUTINE_TEXT_MAX_BYTES.min(app.config.max_body_bytes)).await?;
    let payload = String::from_utf8(body.into());
    let payload = payload.map_err(|_| ApiError::bad_request(ErrorCode::NotUtf8, "the body is not UTF-8"))?;
    if payload.contains('\0') {
        return Err(ApiError::invalid("the body must not contain NUL"));
    }
    let caller = Entry::RoutineHook.principal();
    let routine_runs = trigger_runs(&app, caller, RoutineRequest::Webhook { name, delivery, payload }).await?;
    // The request names one routine.
    let Some(routine_run) = routine_runs.first() else { return Err(ApiError::internal()) };
    // No more than this: the result belongs to the routine's owner.
    let RoutineRunRecord { routine_run_id, routine, status, .. } = routine_run;
    Ok(Json(TriggeredRoutine { routine_run_id: *routine_run_id, routine, status: *status }).into_response())
}

/// The routine of this path, if the secret is right; otherwise the error for the caller.
async fn routine(app: &App, path: &str, secret: &[u8]) -> Result<Result<String, ApiError>, ApiError> {
    let Some(routine) = app.routines.routine_at(path).await? else {
        return Ok(Err(ApiError::not_found("no such webhook")));
    };
    let known = match &routine.spec.trigger {
        Trigger::Webhook { secret_sha256, .. } => from_hex(secret_sha256.as_bytes()),
        _ => None,
    };
    // Compares digests of equal length, so that timing reveals nothing about the secret, not even its length.
    let shown = digest(&SHA256, secret);
    let fits = known.is_some_and(|known| bool::from(known.as_slice().ct_eq(shown.as_ref())));
    Ok(if fits { Ok(routine.spec.name) } else { Err(ApiError::unauthorized("the secret does not match")) })
}
