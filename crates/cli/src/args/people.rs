//! `belay people …`

use clap::{Args, Subcommand};

use super::ClientArgs;

/// `belay people`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct PeopleArgs {
    /// Another subcommand than the list.
    #[command(subcommand)]
    pub command: Option<PeopleCommand>,
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// `belay people …`
#[derive(Debug, Subcommand)]
pub enum PeopleCommand {
    /// List the people who may write, and strangers with a code
    List(ClientArgs),
    /// Admit the stranger who has received this code
    Pair {
        /// The daemon.
        #[command(flatten)]
        client: ClientArgs,
        /// The code, as the stranger tells it
        code: String,
    },
    /// Revoke the admission of a person, and stop the person's runs
    Remove {
        /// The daemon.
        #[command(flatten)]
        client: ClientArgs,
        /// The person: CHANNEL:ID
        person: String,
    },
}
