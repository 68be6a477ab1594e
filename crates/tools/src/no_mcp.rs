//! A build without the feature `mcp` uses no MCP servers: settings that name one are refused.

#[path = "mcp/config.rs"]
pub mod config;

use belay_protocol::RunId;

pub use config::{McpServerConfig, OauthConfig, Trust, find};

/// The connections of runs to MCP servers: none.
pub struct McpSessions;

impl McpSessions {
    /// Cancels nothing.
    pub(crate) async fn cancel_calls(&self, _run: RunId) {}

    /// Ends nothing.
    pub(crate) async fn end_run(&self, _run: RunId) {}

    /// The servers elsewhere that a run is connected to: none.
    pub(crate) fn elsewhere(&self, _run: RunId) -> Vec<String> {
        Vec::new()
    }
}
