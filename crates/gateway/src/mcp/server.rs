//! The MCP server: answers the protocol's requests about tools.

use std::sync::Arc;

use axum::http::request::Parts;
use belay_protocol::Principal;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, Implementation, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::Value;

use super::results::{self, CallFailure};
use super::tools::{arguments, catalogue};
use super::{conversations, runs};
use crate::app::Shared;

/// The description of the server for clients.
const INSTRUCTIONS: &str = "Belay is an autonomous agent: a message to one of its sessions starts a run, which may \
    call tools, wait for a person, and continue after this connection is closed. send_message starts a run, run_status \
    reads it, stop_run ends it.";

/// Answers all clients. It has no state of any client.
#[derive(Clone)]
pub(super) struct Server {
    app: Shared,
    tools: Arc<[Tool]>,
}

impl Server {
    pub(super) fn new(app: Shared) -> Self {
        let tools = catalogue(app.config.max_wait_ms).into();
        Self { app, tools }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("belay", self.app.version.clone()))
            .with_instructions(INSTRUCTIONS)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        // Each request carries the principal that the guard has set: a session belongs to nobody.
        let principal = context.extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Principal>());
        let Some(principal) = principal.cloned() else {
            return Err(ErrorData::internal_error("the request came past the guard", None));
        };
        Ok(results::tool_result(self.answer(request, principal, &context).await).into())
    }
}

impl Server {
    /// Carries out one call.
    ///
    /// # Errors
    /// For the client's model, which can correct the call.
    async fn answer(
        &self,
        request: CallToolRequestParams,
        principal: Principal,
        context: &RequestContext<RoleServer>,
    ) -> Result<Value, CallFailure> {
        let (app, given) = (&*self.app, request.arguments);
        match &*request.name {
            "send_message" => runs::send(app, principal, arguments(given)?, context).await,
            "run_status" => runs::status(app, principal, arguments(given)?, context).await,
            "stop_run" => runs::stop(app, principal, arguments(given)?).await,
            "list_sessions" => conversations::list(app, &principal, arguments(given)?).await,
            "read_conversation" => conversations::read(app, &principal, arguments(given)?).await,
            other => {
                let names: Vec<_> = self.tools.iter().map(|tool| &*tool.name).collect();
                Err(CallFailure::no_tool(other, &names.join(", ")))
            }
        }
    }
}
