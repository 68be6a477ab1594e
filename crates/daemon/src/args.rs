//! The arguments of the commands that need no running daemon. [`crate::cli`] combines all arguments.

use std::path::PathBuf;

use belay_cli::args::{LoginArgs, LogoutArgs, ServeArgs};
use belay_protocol::{DeclaredOutput, LinkId};
use belay_settings::{CheckArgs, SettingsArgs};
use belay_setup::{ApproveArgs, McpListArgs};
use clap::{Args, Subcommand};

/// `belay worker`
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// The job
    #[arg(long, value_name = "ID")]
    pub(crate) job: LinkId,
    /// The socket that the daemon listens on for workers
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: PathBuf,
}

/// `belay config …`
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the merged settings with the origin of each
    Show(CheckArgs),
}

/// `belay ask`
#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    /// The settings.
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// Print the whole run as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print one JSON object with this value in it instead of a text; may be given several times. TYPE is string,
    /// number, integer, boolean, object or array, one of these followed by [], or a JSON Schema
    #[arg(long = "output", value_name = "NAME:TYPE[=DESCRIPTION]", value_parser = DeclaredOutput::parse)]
    pub(crate) outputs: Vec<DeclaredOutput>,
    /// Attach this file, a picture or another file; may be given several times
    #[arg(long = "image", alias = "file", value_name = "FILE")]
    pub(crate) images: Vec<PathBuf>,
    /// The message; `-`, or no message where standard input is no terminal, reads it from standard input
    pub(crate) text: Option<String>,
}

/// `belay mcp …`
#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// List the tools of the configured MCP servers, with the state of each
    List(McpListArgs),
    /// Approve the current description of a tool of an MCP server, or of all its tools
    Approve(ApproveArgs),
    /// Log in at an MCP server that asks for it, through a browser and the running daemon
    Login(LoginArgs),
    /// Revoke and delete the tokens of an MCP server
    Logout(LogoutArgs),
    /// Serve MCP over standard input and output, by relaying to the running daemon
    Serve(ServeArgs),
}
