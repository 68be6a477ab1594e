//! `/api/v1/people`: the people who may write, and pairing.

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use belay_protocol::{Ack, Control, PeopleReport, PeopleRequest, Principal};
use serde::Deserialize;

use crate::app::{App, Shared};
use crate::error::ApiError;
use crate::extract::{JsonBody, Operator, path_text};

/// Longest text that may be a code, in bytes. A code has 8 characters; people add spaces and hyphens.
const CODE_MAX_BYTES: usize = 64;

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "PairingCode"))]
#[serde(deny_unknown_fields)]
pub(crate) struct Pair {
    code: String,
}

/// The person in the path.
pub(crate) struct PersonPath(PeopleRequest);

impl FromRequestParts<Shared> for PersonPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        let person = path_text(parts, app, "person").await?;
        let request = PeopleRequest::remove(&person);
        request.map(Self).ok_or_else(|| ApiError::not_found("no such person: write CHANNEL:ID"))
    }
}

/// Lists people, and strangers with a valid code.
pub(crate) async fn list(State(app): State<Shared>, Operator(by): Operator) -> Result<Json<PeopleReport>, ApiError> {
    ask_agent(&app, by, PeopleRequest::List).await
}

/// Admits the stranger with this code.
pub(crate) async fn pair(
    State(app): State<Shared>,
    Operator(by): Operator,
    JsonBody(Pair { code }): JsonBody<Pair>,
) -> Result<Json<PeopleReport>, ApiError> {
    if code.len() > CODE_MAX_BYTES {
        return Err(ApiError::invalid(format!("code: at most {CODE_MAX_BYTES} bytes")));
    }
    ask_agent(&app, by, PeopleRequest::Pair { code }).await
}

/// Revokes the admission of a person.
pub(crate) async fn remove(
    State(app): State<Shared>,
    Operator(by): Operator,
    PersonPath(request): PersonPath,
) -> Result<Json<PeopleReport>, ApiError> {
    ask_agent(&app, by, request).await
}

async fn ask_agent(app: &App, by: Principal, request: PeopleRequest) -> Result<Json<PeopleReport>, ApiError> {
    match app.control(by, Control::People(request)).await? {
        Ack::People(report) => Ok(Json(*report)),
        other => Err(ApiError::unexpected(&other)),
    }
}
