//! Settings of the built-in tools: the section `[tools]`.

pub mod commands;
pub mod outputs;

use std::collections::BTreeMap;
use std::path::PathBuf;

use belay_protocol::ToolHealthConfig;
use serde::{Deserialize, Serialize};

pub use self::commands::{CommandsConfig, ShellConfig};
pub use self::outputs::OutputsConfig;
use crate::mcp::McpServerConfig;
use crate::sandbox::SandboxConfig;
pub use crate::web::config::{SearchConfig, SearchProvider, WebConfig};

/// Settings of the built-in tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolsConfig {
    /// Root directory of the file tools, which read nothing outside of it. Absent: the daemon's default, `<data
    /// directory>/workspace`.
    pub workspace: Option<PathBuf>,
    /// Largest file that `read_file` opens, in bytes. The file is held in memory while it is
    /// read.
    #[serde(skip)]
    pub max_file_bytes: u64,
    /// Largest picture that `read_file` decodes, in bytes.
    #[serde(skip)]
    pub max_picture_bytes: u64,
    /// Largest file that `write_file` and `edit_file` write, in bytes.
    #[serde(skip)]
    pub max_write_bytes: u64,
    /// Most lines that one call of `read_file` returns.
    #[serde(skip)]
    pub max_read_lines: u32,
    /// Most entries that one call of `list_files` shows. The rest is counted.
    #[serde(skip)]
    pub max_list_entries: u32,
    /// MCP servers, by name: `[tools.mcp.NAME]`.
    pub mcp: BTreeMap<String, McpServerConfig>,
    /// The sandbox of commands.
    pub sandbox: SandboxConfig,
    /// Size limits of stored outputs.
    pub outputs: OutputsConfig,
    /// `run_command`: the section `[tools.commands]`.
    pub commands: CommandsConfig,
    /// `run_shell`: the section `[tools.shell]`.
    pub shell: ShellConfig,
    /// `fetch_url`: the section `[tools.web]`.
    pub web: WebConfig,
    /// `web_search`: the section `[tools.search]`.
    pub search: SearchConfig,
    /// The circuit breaker of tools that fail again and again: the section `[tools.health]`, which the agent uses and
    /// checks.
    pub health: ToolHealthConfig,
}

impl Default for ToolsConfig {
    fn default() -> Self {
        Self {
            workspace: None,
            max_file_bytes: 2 * 1024 * 1024,
            sandbox: SandboxConfig::default(),
            max_picture_bytes: 16 * 1024 * 1024,
            max_write_bytes: 2 * 1024 * 1024,
            max_read_lines: 2000,
            max_list_entries: 500,
            outputs: OutputsConfig::default(),
            commands: CommandsConfig::default(),
            shell: ShellConfig::default(),
            web: WebConfig::default(),
            search: SearchConfig::default(),
            mcp: BTreeMap::new(),
            health: ToolHealthConfig::default(),
        }
    }
}

impl ToolsConfig {
    /// Returns all problems, each beginning with its key. Empty if the settings are valid.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.workspace.as_ref().is_some_and(|path| path.as_os_str().is_empty()) {
            problems.push("tools.workspace: must not be empty".to_owned());
        }
        problems.extend(crate::mcp::config::validate(&self.mcp));
        if !self.mcp.is_empty() && !cfg!(feature = "mcp") {
            let absent = "tools.mcp: this build of Belay uses no MCP servers (feature mcp); remove the setting, or use a \
                          build with it: `belay --version --long` lists the parts";
            problems.push(absent.to_owned());
        }
        problems.extend(self.sandbox.validate());
        problems.extend(self.outputs.validate());
        problems.extend(self.commands.validate());
        problems.extend(self.web.validate());
        problems.extend(self.search.validate());
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(ToolsConfig::default().validate(), Vec::<String>::new());
    }

    #[test]
    fn all_problems_are_reported_with_their_keys() {
        let config = ToolsConfig {
            workspace: Some(PathBuf::new()),
            sandbox: SandboxConfig { memory_mb: 31, ..SandboxConfig::default() },
            web: WebConfig { ports: vec![], ..WebConfig::default() },
            search: SearchConfig { base_url: Some("x".into()), ..SearchConfig::default() },
            ..ToolsConfig::default()
        };
        assert_eq!(
            config.validate(),
            [
                "tools.workspace: must not be empty",
                "tools.sandbox.memory_mb: must be from 32 to 1048576, is 31",
                "tools.web.ports: must name at least one port, and none may be 0",
                "tools.search.base_url: cannot be read: relative URL without a base",
            ]
        );
    }
}
