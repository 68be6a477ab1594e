//! `belay logs` and `belay top`

use clap::Args;

use super::ClientArgs;

/// `belay logs`
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Go on with each new event, until it is interrupted
    #[arg(short, long)]
    pub follow: bool,
    /// Print only events of this conversation
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
    /// Look at this many of the newest events
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(..=100_000))]
    pub last: u64,
}

/// `belay top`
#[derive(Debug, Args)]
pub struct TopArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Seconds between two pictures
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: u64,
    /// Print one picture and end
    #[arg(long)]
    pub once: bool,
}
