//! `belay sessions …`

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{ClientArgs, ROWS_MAX};

/// `belay sessions`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SessionsArgs {
    /// Another subcommand than the list.
    #[command(subcommand)]
    pub command: Option<SessionsCommand>,
    /// The list.
    #[command(flatten)]
    pub list: SessionsListArgs,
}

/// `belay sessions …`
#[derive(Debug, Subcommand)]
pub enum SessionsCommand {
    /// List sessions, most recently used first
    List(SessionsListArgs),
    /// Print the conversation of a session
    Show(SessionArgs),
    /// Search messages
    Search(SearchArgs),
    /// Export a session
    Export(ExportArgs),
    /// Leave a session out of lists until its next message (operators)
    Hide {
        /// The session.
        #[command(flatten)]
        session: SessionArgs,
        /// List it again
        #[arg(long)]
        restore: bool,
    },
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
pub struct SessionsListArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// List at most this many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(ROWS_MAX)))]
    pub limit: u32,
    /// List also the sessions that were created for one OpenAI request without a session name
    #[arg(long)]
    pub all: bool,
    /// List the hidden sessions instead of the others
    #[arg(long)]
    pub hidden: bool,
}

/// Arguments of the `belay sessions` subcommands that take a key.
#[derive(Debug, Args)]
pub struct SessionArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The session's key
    pub key: String,
}

/// `belay sessions search`
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Search only in this session
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
    /// List at most this many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(ROWS_MAX)))]
    pub limit: u32,
    /// Words, or their beginnings; a message must contain all of them
    #[arg(required = true)]
    pub query: Vec<String>,
}

/// `belay sessions export`
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The format of the export
    #[arg(long, value_enum, default_value_t = ExportFormat::Markdown)]
    pub format: ExportFormat,
    /// Export earlier conversations of the session too
    #[arg(long)]
    pub all_threads: bool,
    /// Write to this file instead of standard output
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The session's key
    pub key: String,
}

/// The format of an export.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ExportFormat {
    /// For people
    Markdown,
    /// One JSON object per message and line
    Jsonl,
}

impl ExportFormat {
    /// The word of the format in the request.
    pub fn word(self) -> &'static str {
        match self {
            Self::Markdown => "markdown",
            Self::Jsonl => "jsonl",
        }
    }
}
