//! `/v1/responses/{id}`: a response is read again, whole or as a stream, cancelled, or deleted.

use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use belay_protocol::{Ack, Control, Principal, RunFilter, RunRecord};
use serde::{Deserialize, Serialize};

use super::body::ResponseBody;
use super::errors::{no_response, not_alone};
use super::events::ResponseWriter;
use super::forms::shape_with_note;
use super::id::{RESPONSE, ResponseId};
use super::status::status_of;
use crate::app::{App, Shared};
use crate::entry::Entry;
use crate::error::ApiError;
use crate::extract::{Caller, Params, path_text};
use crate::routes::openai::OpenAiError;
use crate::routes::openai::follow::Joined;
use crate::routes::openai::part::Part;
use crate::routes::openai::readers::Reader;
use crate::routes::openai::used::used_before_newest;
use crate::routes::openai::writer::Writer as _;
use crate::routes::stop::stop_run;

/// How long a cancellation waits for the processes of the run.
const CANCEL_WAIT: Duration = Duration::from_secs(2);

/// The response in the path, of this principal, and its run.
pub(crate) struct OwnResponse {
    pub(super) id: ResponseId,
    pub(super) text: String,
    pub(super) run: RunRecord,
}

impl FromRequestParts<Shared> for OwnResponse {
    type Rejection = OpenAiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, OpenAiError> {
        let Caller(principal) = Caller::from_request_parts(parts, app).await?;
        let text = path_text(parts, app, "response").await?;
        match find(app, &principal, RESPONSE, &text).await? {
            Some((id, run)) => Ok(Self { id, text, run }),
            None => Err(no_response(&text)),
        }
    }
}

/// The response with this id, and its run; `None`: there is none for this principal, or it is not stored any more.
pub(super) async fn find(
    app: &App,
    principal: &Principal,
    prefix: &str,
    text: &str,
) -> Result<Option<(ResponseId, RunRecord)>, ApiError> {
    let Some(id) = ResponseId::parse(app, principal, prefix, text).filter(|id| id.kind.stored) else {
        return Ok(None);
    };
    let Some(run) = app.runs.run(id.run).await? else { return Ok(None) };
    app.visibility(principal).visible_session(run.session.clone()).await?;
    // Of a run with a key, the store keeps a row after its session is deleted.
    Ok(app.sessions.session(&run.session).await?.is_some().then_some((id, run)))
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ShowParams {
    stream: Option<bool>,
    /// The stream begins after the event with this number. For responses in the background.
    starting_after: Option<u64>,
}

/// Shows a response as it is, or streams it to its end.
pub(crate) async fn show(
    State(app): State<Shared>,
    Caller(principal): Caller,
    OwnResponse { id, run, .. }: OwnResponse,
    params: Result<Params<ShowParams>, ApiError>,
) -> Result<Response, OpenAiError> {
    let Params(ShowParams { stream, starting_after }) = params?;
    let mut shape = shape_with_note(&app, &principal, id, &run).await?;
    let part = Part::read(&app, &shape.head, run.into(), id.after).await?;
    if stream != Some(true) {
        return Ok((shape.head.headers(part.outcome.run.reason), Json(part.body(&shape))).into_response());
    }
    if starting_after.is_some() && !id.kind.background {
        let message = "only a response with background: true can be resumed; leave starting_after out for the whole";
        return Err(OpenAiError::invalid("starting_after", "invalid_value", message));
    }
    if matches!(status_of(&part.outcome), "queued" | "in_progress") {
        // It ends with the run, whose usage has that of the answers before it.
        shape.head = shape.head.after_use_of(used_before_newest(&app, id.run).await);
    }
    let status = if id.kind.background { "queued" } else { "in_progress" };
    let events = ResponseWriter::new(shape, status).after(starting_after);
    let mut reader = Reader::new(app.clone(), principal.clone(), id.run, true);
    reader.served(); // a reader that goes away ends nothing
    let joined = Joined::read(&app, &principal, events.head(), id.run, id.after).await?;
    Ok(joined.answer(reader, events))
}

/// Stops the run of a response that has not ended, and shows it. The run of one that has ended may be at a later response.
pub(crate) async fn cancel(
    State(app): State<Shared>,
    Caller(principal): Caller,
    OwnResponse { id, run, .. }: OwnResponse,
) -> Result<Json<ResponseBody>, OpenAiError> {
    let head = shape_with_note(&app, &principal, id, &run).await?.head;
    let part = Part::read(&app, &head, run.clone().into(), id.after).await?;
    if matches!(status_of(&part.outcome), "queued" | "in_progress") {
        let visible = app.visibility(&principal).visible_run(id.run).await?;
        stop_run(&app, principal.clone(), visible, CANCEL_WAIT).await?;
    }
    let run = app.runs.run(id.run).await.map_err(ApiError::from)?.unwrap_or(run);
    let shape = shape_with_note(&app, &principal, id, &run).await?;
    let part = Part::read(&app, &shape.head, run.into(), id.after).await?;
    Ok(Json(part.body(&shape)))
}

/// A response that is deleted.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DeletedResponse {
    id: String,
    #[cfg_attr(test, schemars(extend("enum" = ["response"])))]
    object: &'static str,
    deleted: bool,
}

/// Deletes a response with its conversation, which consists of nothing else.
pub(crate) async fn delete(
    State(app): State<Shared>,
    Caller(principal): Caller,
    OwnResponse { text, run, .. }: OwnResponse,
) -> Result<Json<DeletedResponse>, OpenAiError> {
    if !is_alone(&app, &run).await? {
        return Err(not_alone(&run.session));
    }
    // The request of this client has created the session, and nobody else has used it. The agent lets operators alone delete
    // sessions, because it does not know that.
    let gateway = Entry::ControlSocket.principal();
    tracing::info!(principal = %principal.id, session = %run.session, run_id = %run.run_id, "deleting a response with its conversation");
    match app.control(gateway, Control::DeleteSession(run.session)).await? {
        Ack::Removed(_) => Ok(Json(DeletedResponse { id: text, object: "response", deleted: true })),
        other => Err(ApiError::unexpected(&other).into()),
    }
}

/// Whether the session was created for this run, and has no other one.
async fn is_alone(app: &App, run: &RunRecord) -> Result<bool, ApiError> {
    let session = app.sessions.session(&run.session).await?;
    if session.is_none_or(|session| session.lifetime.is_lasting()) {
        return Ok(false);
    }
    let all = RunFilter { session: Some(run.session.clone()), limit: 2, ..RunFilter::default() };
    Ok(app.runs.runs(all).await?.len() == 1)
}
