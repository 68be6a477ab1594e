//! `belay sessions …`

use std::path::PathBuf;

use belay_gateway::LIST_MAX;
use clap::{Args, Subcommand, ValueEnum};

use super::ClientArgs;

/// `belay sessions`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SessionsArgs {
    /// Something else than the list.
    #[command(subcommand)]
    pub(crate) command: Option<SessionsCommand>,
    /// The list.
    #[command(flatten)]
    pub(crate) list: SessionsListArgs,
}

/// `belay sessions …`
#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List sessions, most recently used first
    List(SessionsListArgs),
    /// Print the conversation of a session
    Show(SessionArgs),
    /// Search messages
    Search(SearchArgs),
    /// Export a session
    Export(ExportArgs),
    /// Delete a session with everything of it (operators)
    Delete(SessionArgs),
    /// Delete now what the settings consider too old (operators)
    Prune {
        /// The daemon.
        #[command(flatten)]
        client: ClientArgs,
        /// Only say what would be deleted
        #[arg(long)]
        dry_run: bool,
    },
    /// Delete the secrets of a session, or one of them (operators)
    ForgetSecrets {
        /// The session.
        #[command(flatten)]
        session: SessionArgs,
        /// Only the secret of this name
        name: Option<String>,
    },
}

/// `belay sessions list`
#[derive(Debug, Args)]
pub(crate) struct SessionsListArgs {
    /// The daemon.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// At most so many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(LIST_MAX)))]
    pub(crate) limit: u32,
    /// List those too that were created for one OpenAI request, without a name
    #[arg(long)]
    pub(crate) all: bool,
}

/// `belay sessions show KEY` and its like
#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// The daemon.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// The session's key
    pub(crate) key: String,
}

/// `belay sessions search`
#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    /// The daemon.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// Only in this session
    #[arg(long, value_name = "KEY")]
    pub(crate) session: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(LIST_MAX)))]
    pub(crate) limit: u32,
    /// Words, or their beginnings; all of them must be there
    #[arg(required = true)]
    pub(crate) query: Vec<String>,
}

/// `belay sessions export`
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The daemon.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// How it is written
    #[arg(long, value_enum, default_value_t = ExportFormat::Markdown)]
    pub(crate) format: ExportFormat,
    /// Earlier conversations of the session, too
    #[arg(long)]
    pub(crate) all_threads: bool,
    /// Write to this file instead of standard output
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The session's key
    pub(crate) key: String,
}

/// How a session is written down.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ExportFormat {
    /// For people
    Markdown,
    /// One JSON object for each message, each in its line
    Jsonl,
}

impl ExportFormat {
    /// The word in the request.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Markdown => "markdown",
            Self::Jsonl => "jsonl",
        }
    }
}
