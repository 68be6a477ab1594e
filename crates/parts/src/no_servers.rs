//! A build without the feature `mcp` uses no MCP servers: settings that name one are refused.

use std::sync::Arc;

use belay_agent::Reloader;
use belay_program::environment::Environment;
use belay_program::exit::Failure;
use belay_program::paths::Paths;
use belay_protocol::{PinStore, ServerLogins, Tool};
use belay_settings::Settings;
use belay_tools::mcp::McpSessions;
use tokio_util::sync::CancellationToken;

use crate::process_needs::ProcessNeeds;

/// No servers.
#[derive(Clone)]
pub(crate) struct Servers;

impl Servers {
    /// Builds nothing.
    pub(crate) fn build(
        _needs: &ProcessNeeds,
        _settings: &Settings,
        _env: &Environment,
        _paths: &Paths,
        _pins_and_patience: (Option<Arc<dyn PinStore>>, bool),
    ) -> Result<Self, Failure> {
        Ok(Self)
    }

    /// The tools of servers: none.
    pub(crate) async fn recall(&mut self, _settings: &Settings) -> Result<Vec<Arc<dyn Tool>>, Failure> {
        Ok(Vec::new())
    }

    /// The connections of runs: none.
    pub(crate) fn sessions(&self) -> Arc<McpSessions> {
        Arc::new(McpSessions)
    }

    /// The logins: none.
    pub(crate) fn logins(&self) -> Option<Arc<dyn ServerLogins>> {
        None
    }

    /// Asks nobody.
    pub(crate) async fn refresh(&self) {}

    /// Waits until it is stopped.
    pub(crate) async fn keep(&self, stop: CancellationToken) {
        stop.cancelled().await;
    }

    /// Waits until it is stopped.
    pub(crate) fn offer_late(
        &self,
        _agent: Reloader,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<> {
        async move { stop.cancelled().await }
    }

    /// Waits for nothing.
    pub(crate) async fn settle_logins(&self) {}
}
