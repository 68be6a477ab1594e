//! `belay sessions …`

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{ClientArgs, ROWS_MAX};

/// `belay sessions`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SessionsArgs {
    /// Another subcommand than the list.
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
    /// Delete a session and everything that belongs to it (operators)
    Delete(SessionArgs),
    /// Delete now everything that is older than the settings allow (operators)
    Prune {
        /// The daemon.
        #[command(flatten)]
        client: ClientArgs,
        /// Only print what would be deleted
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
    /// List at most this many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(ROWS_MAX)))]
    pub(crate) limit: u32,
    /// List also the sessions that were created for one OpenAI request without a session name
    #[arg(long)]
    pub(crate) all: bool,
}

/// Arguments of the `belay sessions` subcommands that take a key.
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
    /// Search only in this session
    #[arg(long, value_name = "KEY")]
    pub(crate) session: Option<String>,
    /// List at most this many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(ROWS_MAX)))]
    pub(crate) limit: u32,
    /// Words, or their beginnings; a message must contain all of them
    #[arg(required = true)]
    pub(crate) query: Vec<String>,
}

/// `belay sessions export`
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The daemon.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// The format of the export
    #[arg(long, value_enum, default_value_t = ExportFormat::Markdown)]
    pub(crate) format: ExportFormat,
    /// Export earlier conversations of the session too
    #[arg(long)]
    pub(crate) all_threads: bool,
    /// Write to this file instead of standard output
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The session's key
    pub(crate) key: String,
}

/// The format of an export.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ExportFormat {
    /// For people
    Markdown,
    /// One JSON object per message and line
    Jsonl,
}

impl ExportFormat {
    /// The word of the format in the request.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Markdown => "markdown",
            Self::Jsonl => "jsonl",
        }
    }
}
