//! `/api/v1/tools`: the tools that runs can call, their health, and disabling and enabling them.

use axum::Json;
use axum::extract::State;
use belay_protocol::{Ack, Control, Principal, ToolHealth, ToolRequest};
use serde::{Deserialize, Serialize};

use super::status::Nothing;
use crate::app::{App, Shared};
use crate::error::ApiError;
use crate::extract::{Caller, JsonBody, NamePath, Operator, OptionalBody};

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ToolList {
    tools: Vec<ToolHealth>,
}

/// The reason for disabling a tool.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct DisableReason {
    detail: String,
}

/// Lists all tools by name, MCP servers included.
pub(crate) async fn list(State(app): State<Shared>, Caller(principal): Caller) -> Result<Json<ToolList>, ApiError> {
    ask_agent(&app, principal, ToolRequest::List).await.map(|tools| Json(ToolList { tools }))
}

/// Disables a tool until it is enabled.
pub(crate) async fn disable(
    State(app): State<Shared>,
    Operator(principal): Operator,
    NamePath(name): NamePath,
    JsonBody(DisableReason { detail }): JsonBody<DisableReason>,
) -> Result<Json<ToolHealth>, ApiError> {
    one(&app, principal, ToolRequest::Disable { name, detail }).await.map_err(|error| error.about("detail"))
}

/// Enables a tool.
pub(crate) async fn enable(
    State(app): State<Shared>,
    Operator(principal): Operator,
    NamePath(name): NamePath,
    OptionalBody(Nothing {}): OptionalBody<Nothing>,
) -> Result<Json<ToolHealth>, ApiError> {
    one(&app, principal, ToolRequest::Enable(name)).await
}

async fn one(app: &App, principal: Principal, request: ToolRequest) -> Result<Json<ToolHealth>, ApiError> {
    ask_agent(app, principal, request).await?.pop().map(Json).ok_or_else(ApiError::internal)
}

async fn ask_agent(app: &App, principal: Principal, request: ToolRequest) -> Result<Vec<ToolHealth>, ApiError> {
    match app.control(principal, Control::Tools(request)).await? {
        Ack::Tools(tools) => Ok(tools),
        other => Err(ApiError::unexpected(&other)),
    }
}
