//! `belay mcp login`, `belay mcp logout` and `belay mcp serve`

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

/// `belay mcp serve`
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The address of the daemon: http://host:port, or unix:/path/of/control.sock [default: this user's control socket]
    #[arg(long, env = "BELAY_URL", value_name = "URL")]
    pub url: Option<String>,
}
