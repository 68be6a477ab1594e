//! `belay tools …`

use clap::{Args, Subcommand};

use super::ClientArgs;

/// `belay tools`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ToolsArgs {
    /// Another subcommand than the list.
    #[command(subcommand)]
    pub command: Option<ToolsCommand>,
    /// The list.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// `belay tools …`
#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// List the tools with their status
    List(ClientArgs),
    /// Show one tool and its latest failures
    Show {
        /// The daemon.
        #[command(flatten)]
        client: ClientArgs,
        /// The tool, or mcp:NAME for an MCP server
        name: String,
    },
    /// Disable a tool until it is enabled
    Disable {
        /// The daemon.
        #[command(flatten)]
        client: ClientArgs,
        /// The tool, or mcp:NAME for an MCP server with all its tools
        name: String,
        /// The reason, which models read
        detail: String,
    },
    /// Enable a tool
    Enable {
        /// The daemon.
        #[command(flatten)]
        client: ClientArgs,
        /// The tool, or mcp:NAME for an MCP server
        name: String,
    },
}
