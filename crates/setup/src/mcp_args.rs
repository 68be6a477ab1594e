//! The arguments of `belay mcp list` and `belay mcp approve`.

use belay_settings::SettingsArgs;
use clap::Args;

/// `belay mcp list`
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The settings.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Print JSON, with whole descriptions and arguments
    #[arg(long)]
    pub json: bool,
    /// List only this server
    pub server: Option<String>,
}

/// `belay mcp approve`
#[derive(Debug, Args)]
pub struct ApproveArgs {
    /// The settings.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The server's name in the settings
    pub server: String,
    /// The name of the tool on the server; without it all of its tools
    pub tool: Option<String>,
}
