//! `/api/v1/mcp/{name}/login`: logins at MCP servers, for operators.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use belay_protocol::{BegunLogin, EndedLogin, LoginRefusal, LoginReport, ServerLogins};
use serde::Deserialize;

use crate::app::{App, Shared};
use crate::error::ApiError;
use crate::extract::{JsonBody, NamePath, Operator};

/// The beginning of a login.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct LoginRequest {
    /// The port of 127.0.0.1 on the machine of the browser to which it is sent back, unless the settings name one.
    port: u16,
}

/// The end of a login.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct LoginAnswer {
    /// The address to which the browser was sent back, or its query.
    answer: String,
}

/// Begins a login.
pub(crate) async fn begin(
    State(app): State<Shared>,
    _: Operator,
    NamePath(name): NamePath,
    JsonBody(LoginRequest { port }): JsonBody<LoginRequest>,
) -> Result<Json<BegunLogin>, ApiError> {
    if port == 0 {
        return Err(ApiError::invalid("port: must be from 1 to 65535, is 0"));
    }
    logins(&app)?.begin(&name, port).await.map(Json).map_err(error)
}

/// Completes a login.
pub(crate) async fn finish(
    State(app): State<Shared>,
    _: Operator,
    NamePath(name): NamePath,
    JsonBody(LoginAnswer { answer }): JsonBody<LoginAnswer>,
) -> Result<Json<LoginReport>, ApiError> {
    logins(&app)?.finish(&name, &answer).await.map(Json).map_err(error)
}

/// Ends a login.
pub(crate) async fn end(
    State(app): State<Shared>,
    _: Operator,
    NamePath(name): NamePath,
) -> Result<Json<EndedLogin>, ApiError> {
    logins(&app)?.end(&name).await.map(Json).map_err(error)
}

fn logins(app: &App) -> Result<&Arc<dyn ServerLogins>, ApiError> {
    let none = || ApiError::not_found("no MCP server with an address, and without a token in the settings, is enabled");
    app.kept.logins.as_ref().ok_or_else(none)
}

fn error(refusal: LoginRefusal) -> ApiError {
    match refusal {
        LoginRefusal::NoServer(words) => ApiError::not_found(words),
        LoginRefusal::Refused(words) => ApiError::decided(words),
        LoginRefusal::Failed(words) => ApiError::login_failed(words),
    }
}
