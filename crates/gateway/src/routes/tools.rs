//! `/api/v1/tools`: what runs can call, how each of it gets on, and switching it off and on.

use axum::Json;
use axum::extract::State;
use belay_protocol::{Ack, Control, Principal, ToolHealth, ToolRequest};
use serde::{Deserialize, Serialize};

use super::status::Nothing;
use crate::app::{App, Shared};
use crate::error::ApiError;
use crate::extract::{Caller, JsonBody, NamePath, Operator, OptionalBody};

#[derive(Serialize)]
pub(crate) struct ToolList {
    tools: Vec<ToolHealth>,
}

/// Why a tool is switched off.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Why {
    detail: String,
}

/// All of them, by name, MCP servers among them.
pub(crate) async fn list(State(app): State<Shared>, Caller(principal): Caller) -> Result<Json<ToolList>, ApiError> {
    asked(&app, principal, ToolRequest::List).await.map(|tools| Json(ToolList { tools }))
}

/// Switches one off until it is switched on.
pub(crate) async fn disable(
    State(app): State<Shared>,
    Operator(principal): Operator,
    NamePath(name): NamePath,
    JsonBody(Why { detail }): JsonBody<Why>,
) -> Result<Json<ToolHealth>, ApiError> {
    one(&app, principal, ToolRequest::Disable { name, detail }).await
}

/// Switches one on.
pub(crate) async fn enable(
    State(app): State<Shared>,
    Operator(principal): Operator,
    NamePath(name): NamePath,
    OptionalBody(Nothing {}): OptionalBody<Nothing>,
) -> Result<Json<ToolHealth>, ApiError> {
    one(&app, principal, ToolRequest::Enable(name)).await
}

async fn one(app: &App, principal: Principal, request: ToolRequest) -> Result<Json<ToolHealth>, ApiError> {
    asked(app, principal, request).await?.pop().map(Json).ok_or_else(ApiError::internal)
}

async fn asked(app: &App, principal: Principal, request: ToolRequest) -> Result<Vec<ToolHealth>, ApiError> {
    match app.control(principal, Control::Tools(request)).await? {
        Ack::Tools(tools) => Ok(tools),
        other => Err(ApiError::unexpected(&other)),
    }
}
