//! `belay console`

use clap::Args;

use super::ClientArgs;

/// `belay console`
#[derive(Debug, Args)]
pub struct ConsoleArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The address at which browsers reach the console, if a proxy stands before the daemon: https://HOST
    #[arg(long, value_name = "URL")]
    pub base: Option<String>,
}
