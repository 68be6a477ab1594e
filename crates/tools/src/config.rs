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
    /// Largest file that `read_file` opens, in bytes; 1 to [`MAX_FILE_BYTES`]. The file is held in memory while it is
    /// read.
    pub max_file_bytes: u64,
    /// Largest picture that `read_file` decodes, in bytes; 1 to [`MAX_FILE_BYTES`].
    pub max_picture_bytes: u64,
    /// Largest file that `write_file` and `edit_file` write, in bytes; 1 to [`MAX_FILE_BYTES`].
    pub max_write_bytes: u64,
    /// Most lines that one call of `read_file` returns; 1 to [`MAX_READ_LINES`].
    pub max_read_lines: u32,
    /// Most entries that one call of `list_files` shows; 1 to [`MAX_LIST_ENTRIES`]. The rest is counted.
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

/// Upper end of [`ToolsConfig::max_file_bytes`]. 64 MiB: the daemon stays small even with several reads at once.
pub const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// Upper end of [`ToolsConfig::max_read_lines`]. A result is cut at 64 KiB, so more lines would not fit.
pub const MAX_READ_LINES: u32 = 50_000;

/// Upper end of [`ToolsConfig::max_list_entries`], for the same reason as [`MAX_READ_LINES`].
pub const MAX_LIST_ENTRIES: u32 = 10_000;

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
        for (key, value, most) in [
            ("max_file_bytes", self.max_file_bytes, MAX_FILE_BYTES),
            ("max_picture_bytes", self.max_picture_bytes, MAX_FILE_BYTES),
            ("max_write_bytes", self.max_write_bytes, MAX_FILE_BYTES),
            ("max_read_lines", self.max_read_lines.into(), MAX_READ_LINES.into()),
            ("max_list_entries", self.max_list_entries.into(), MAX_LIST_ENTRIES.into()),
        ] {
            if !(1..=most).contains(&value) {
                problems.push(format!("tools.{key}: must be from 1 to {most}, is {value}"));
            }
        }
        problems.extend(crate::mcp::config::validate(&self.mcp));
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
            max_file_bytes: 0,
            max_picture_bytes: 0,
            max_write_bytes: MAX_FILE_BYTES + 1,
            max_read_lines: 0,
            max_list_entries: u32::MAX,
            sandbox: SandboxConfig { cpu_s: 0, ..SandboxConfig::default() },
            web: WebConfig { timeout_s: 0, ..WebConfig::default() },
            search: SearchConfig { results: 0, ..SearchConfig::default() },
            ..ToolsConfig::default()
        };
        assert_eq!(
            config.validate(),
            [
                "tools.workspace: must not be empty",
                "tools.max_file_bytes: must be from 1 to 67108864, is 0",
                "tools.max_picture_bytes: must be from 1 to 67108864, is 0",
                "tools.max_write_bytes: must be from 1 to 67108864, is 67108865",
                "tools.max_read_lines: must be from 1 to 50000, is 0",
                "tools.max_list_entries: must be from 1 to 10000, is 4294967295",
                "tools.sandbox.cpu_s: must be from 1 to 86400, is 0",
                "tools.web.timeout_s: must be from 1 to 300, is 0",
                "tools.search.results: must be from 1 to 20, is 0",
            ]
        );
    }
}
