//! `belay tools …`

use clap::{Args, Subcommand};

use super::ClientArgs;

/// `belay tools`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ToolsArgs {
    /// Something else than the list.
    #[command(subcommand)]
    pub(crate) command: Option<ToolsCommand>,
    /// The list.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// `belay tools …`
#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// List what runs can call, and how each tool gets on
    List(ClientArgs),
    /// Show one tool, and what it failed with
    Show {
        /// The daemon.
        #[command(flatten)]
        client: ClientArgs,
        /// The tool, or mcp:NAME for an MCP server
        name: String,
    },
    /// Switch a tool off until it is switched on
    Disable {
        /// The daemon.
        #[command(flatten)]
        client: ClientArgs,
        /// The tool, or mcp:NAME for an MCP server with all its tools
        name: String,
        /// Why: models read it
        detail: String,
    },
    /// Switch a tool on
    Enable {
        /// The daemon.
        #[command(flatten)]
        client: ClientArgs,
        /// The tool, or mcp:NAME for an MCP server
        name: String,
    },
}
