//! `belay routines …`

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ClientArgs, LIST_MAX, ROWS_MAX};

/// `belay routines`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct RoutinesArgs {
    /// Another subcommand than the list.
    #[command(subcommand)]
    pub command: Option<RoutinesCommand>,
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// `belay routines …`
#[derive(Debug, Subcommand)]
pub enum RoutinesCommand {
    /// List routines by name
    List(ClientArgs),
    /// Show one routine
    Show(RoutineArgs),
    /// Create a routine from a TOML file
    Create(CreateRoutineArgs),
    /// Revoke a grant of a routine
    Revoke {
        /// The routine.
        #[command(flatten)]
        routine: RoutineArgs,
        /// The number of the grant, from 1
        grant: usize,
    },
    /// Enable a routine
    Enable(RoutineArgs),
    /// Disable a routine
    Disable(RoutineArgs),
    /// Delete a routine; the records of its runs stay
    Delete(RoutineArgs),
    /// Fire a routine now
    Fire {
        /// The routine.
        #[command(flatten)]
        routine: RoutineArgs,
        /// The payload of the run, as untrusted content; `-` reads it from standard input
        #[arg(long, value_name = "TEXT")]
        payload: Option<String>,
        /// Wait for the end of the run, print its answer, and exit with its verdict; 75: the run waits for approval
        #[arg(long)]
        wait: bool,
    },
    /// List the runs of a routine, newest first
    Runs {
        /// The routine.
        #[command(flatten)]
        routine: RoutineArgs,
        /// List only runs with this status: running, ok, attention, failed, missed or skipped
        #[arg(long)]
        status: Option<String>,
        /// List at most this many
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(ROWS_MAX)))]
        limit: u32,
    },
    /// List the next times at which routines fire
    Next {
        /// The daemon.
        #[command(flatten)]
        client: ClientArgs,
        /// List at most this many
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=i64::from(LIST_MAX)))]
        count: u32,
        /// Only this routine
        name: Option<String>,
    },
    /// Test whether a routine would fire at a time; exit with 1 if it would not
    Test {
        /// The daemon.
        #[command(flatten)]
        client: ClientArgs,
        /// The routine
        #[arg(required_unless_present = "file", conflicts_with = "file")]
        name: Option<String>,
        /// Test a TOML file instead of a routine of the daemon; then no daemon is needed
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// The time: 2026-12-01T09:00 in the routine's time zone, or with an offset
        #[arg(long, value_name = "TIME")]
        at: String,
    },
}

/// Arguments of the `belay routines` subcommands that take a name.
#[derive(Debug, Args)]
pub struct RoutineArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The routine's name
    pub name: String,
}

/// Creating a routine.
#[derive(Debug, Args)]
pub struct CreateRoutineArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The file
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// Replace the routine of that name, if there is one
    #[arg(long)]
    pub replace: bool,
    /// Let its runs make this call without a question, besides those of the file: `run_command: git fetch`; repeatable
    #[arg(long, value_name = "GRANT")]
    pub allow: Vec<String>,
    /// Give the grants without asking at the terminal
    #[arg(long)]
    pub yes: bool,
}
