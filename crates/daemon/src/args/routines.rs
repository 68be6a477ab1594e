//! `belay routines …`

use std::path::PathBuf;

use belay_gateway::LIST_MAX;
use clap::{Args, Subcommand};

use super::ClientArgs;

/// `belay routines`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RoutinesArgs {
    /// Something else than the list.
    #[command(subcommand)]
    pub(crate) command: Option<RoutinesCommand>,
    /// The daemon.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// `belay routines …`
#[derive(Debug, Subcommand)]
pub(crate) enum RoutinesCommand {
    /// List routines by name
    List(ClientArgs),
    /// Show one routine
    Show(RoutineArgs),
    /// Create a routine from a TOML file
    Create {
        /// The daemon.
        #[command(flatten)]
        client: ClientArgs,
        /// The file
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// Change the one of that name, if there is one
        #[arg(long)]
        replace: bool,
    },
    /// Enable a routine
    Enable(RoutineArgs),
    /// Disable a routine
    Disable(RoutineArgs),
    /// Delete a routine; what it has done stays
    Delete(RoutineArgs),
    /// Fire a routine now
    Fire {
        /// The routine.
        #[command(flatten)]
        routine: RoutineArgs,
        /// Its payload, as untrusted content; `-` reads it from standard input
        #[arg(long, value_name = "TEXT")]
        payload: Option<String>,
    },
    /// List the runs of a routine, newest first
    Runs {
        /// The routine.
        #[command(flatten)]
        routine: RoutineArgs,
        /// Only those that are running, ok, attention, failed, missed or skipped
        #[arg(long)]
        status: Option<String>,
        /// At most so many
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(LIST_MAX)))]
        limit: u32,
    },
    /// Show what fires next
    Next {
        /// The daemon.
        #[command(flatten)]
        client: ClientArgs,
        /// At most so many
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=i64::from(LIST_MAX)))]
        count: u32,
        /// Only this routine
        name: Option<String>,
    },
    /// Say whether a routine would fire at a time. Exit 1: it would not
    Test {
        /// The daemon.
        #[command(flatten)]
        client: ClientArgs,
        /// The routine
        #[arg(required_unless_present = "file", conflicts_with = "file")]
        name: Option<String>,
        /// A TOML file instead of a routine of the daemon, which need not run then
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// The time: 2026-12-01T09:00, as the clock of the routine's zone shows it, or with an offset
        #[arg(long, value_name = "TIME")]
        at: String,
    },
}

/// `belay routines show NAME` and its like
#[derive(Debug, Args)]
pub(crate) struct RoutineArgs {
    /// The daemon.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// The routine's name
    pub(crate) name: String,
}
