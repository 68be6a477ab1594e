//! `belay mcp login` and `belay mcp logout`

use clap::Args;

use super::ClientArgs;

/// `belay mcp login`
#[derive(Debug, Args)]
pub struct LoginArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Only print the address, and open no browser
    #[arg(long)]
    pub no_browser: bool,
    /// The server's name in the settings
    pub server: String,
}

/// `belay mcp logout`
#[derive(Debug, Args)]
pub struct LogoutArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The server's name in the settings
    pub server: String,
}
