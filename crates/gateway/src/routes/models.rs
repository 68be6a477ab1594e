//! `GET /api/v1/models` and `GET /api/v1/mcp`: the health of models and of MCP servers.

use axum::Json;
use axum::extract::State;
use belay_protocol::{
    Ack, CandidateStatus, Control, LoginReport, LoginState, ModelInfo, ModelTrouble, ToolHealth, ToolRequest,
};
use serde::Serialize;

use super::status::status_of;
use crate::app::Shared;
use crate::error::ApiError;
use crate::extract::Caller;

/// Before the name of an MCP server in the list of tools.
const SERVER: &str = "mcp:";

/// The models, and how they do.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ModelsReport {
    /// The model that is asked first.
    model: ModelInfo,
    /// The failure of the last call; `null`: it did not fail.
    trouble: Option<ModelTrouble>,
    /// The models and keys in the order in which they are asked, with their cooldowns.
    candidates: Vec<CandidateStatus>,
}

/// The configured MCP servers.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ServersReport {
    servers: Vec<Server>,
}

/// One MCP server.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Server {
    /// Its name in the settings.
    server: String,
    #[serde(flatten)]
    health: ToolHealth,
    /// The login at it; absent: it has none. Only operators see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    login: Option<LoginReport>,
}

/// Lists the models in the order in which they are asked. With one model and one key, that one is the only candidate.
pub(crate) async fn list(State(app): State<Shared>, Caller(principal): Caller) -> Result<Json<ModelsReport>, ApiError> {
    let status = *status_of(&app, principal).await?;
    let mut candidates = status.candidates;
    if candidates.is_empty() {
        let name = format!("{} by {}", status.model.model, status.model.provider);
        candidates.push(CandidateStatus { name, cooling_until: None, reason: None });
    }
    Ok(Json(ModelsReport { model: status.model, trouble: status.model_trouble, candidates }))
}

/// Lists the MCP servers with their health.
pub(crate) async fn servers(
    State(app): State<Shared>,
    Caller(principal): Caller,
) -> Result<Json<ServersReport>, ApiError> {
    let mut logins = match &app.kept.logins {
        Some(logins) if principal.is_operator() => logins.logins().await,
        _ => Vec::new(),
    };
    let tools = match app.control(principal, Control::Tools(ToolRequest::List)).await? {
        Ack::Tools(tools) => tools,
        other => return Err(ApiError::unexpected(&other)),
    };
    let server = |health: ToolHealth| {
        let server = health.name.strip_prefix(SERVER)?.to_owned();
        let login = logins.iter().position(|login| login.server == server).map(|at| logins.swap_remove(at));
        Some(Server { server, health, login: login.filter(|login| login.state != LoginState::None) })
    };
    Ok(Json(ServersReport { servers: tools.into_iter().filter_map(server).collect() }))
}
