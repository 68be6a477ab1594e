//! A build without the feature `mcp` uses no MCP servers: settings that name one are refused.

use belay_program::environment::Environment;
use belay_program::paths::Paths;
use belay_settings::Settings;

use super::Finding;

/// Asks nobody.
pub(super) async fn servers(_settings: &Settings, _paths: &Paths, _env: &Environment) -> Vec<Finding> {
    Vec::new()
}
