//! The arguments of `belay man`.

use std::path::PathBuf;

use clap::Args;

/// `belay man`
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write the pages of all commands into this directory, belay.1, belay-run.1 and so on; without it, belay.1 is
    /// opened on a terminal, and printed elsewhere
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}
