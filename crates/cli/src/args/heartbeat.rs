//! `belay heartbeat …`

use clap::{Args, Subcommand};

use super::ClientArgs;

/// `belay heartbeat`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct HeartbeatArgs {
    /// Another subcommand than the status.
    #[command(subcommand)]
    pub command: Option<HeartbeatCommand>,
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// `belay heartbeat …`
#[derive(Debug, Subcommand)]
pub enum HeartbeatCommand {
    /// Run it now, ignoring quiet hours, back-off and idle time
    Now(ClientArgs),
}
