//! `belay heartbeat …`

use clap::{Args, Subcommand};

use super::ClientArgs;

/// `belay heartbeat`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct HeartbeatArgs {
    /// Another subcommand than the status.
    #[command(subcommand)]
    pub(crate) command: Option<HeartbeatCommand>,
    /// The daemon.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// `belay heartbeat …`
#[derive(Debug, Subcommand)]
pub(crate) enum HeartbeatCommand {
    /// Run it now, ignoring quiet hours, back-off and idle time
    Now(ClientArgs),
}
