//! `belay heartbeat …`

use clap::{Args, Subcommand};

use super::ClientArgs;

/// `belay heartbeat`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct HeartbeatArgs {
    /// Something else than how it stands.
    #[command(subcommand)]
    pub(crate) command: Option<HeartbeatCommand>,
    /// The daemon.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// `belay heartbeat …`
#[derive(Debug, Subcommand)]
pub(crate) enum HeartbeatCommand {
    /// Beat now: quiet hours, the pause after a failure, and the silence of people do not count
    Now(ClientArgs),
}
