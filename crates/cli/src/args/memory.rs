//! `belay memory …`

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ClientArgs, LIST_MAX};

/// `belay memory`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct MemoryArgs {
    /// Another subcommand than the list.
    #[command(subcommand)]
    pub command: Option<MemoryCommand>,
    /// The list.
    #[command(flatten)]
    pub list: MemoryListArgs,
}

/// `belay memory …`
#[derive(Debug, Subcommand)]
pub enum MemoryCommand {
    /// List notes, oldest first
    List(MemoryListArgs),
    /// Print a note
    Show(NoteArgs),
    /// Search notes; any of the words is enough
    Search {
        /// The list.
        #[command(flatten)]
        list: MemoryListArgs,
        /// The words
        #[arg(required = true)]
        query: Vec<String>,
    },
    /// Replace the text of a note
    Edit {
        /// The note.
        #[command(flatten)]
        note: NoteArgs,
        /// The new text; `-` reads it from standard input
        text: String,
    },
    /// Export notes as JSON lines
    Export {
        /// The daemon.
        #[command(flatten)]
        client: ClientArgs,
        /// The owner.
        #[command(flatten)]
        owner: NoteOwner,
        /// Write to this file instead of standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Delete a note, or all notes of a person or a group
    Delete {
        /// The daemon.
        #[command(flatten)]
        client: ClientArgs,
        /// The owner.
        #[command(flatten)]
        owner: NoteOwner,
        /// Delete all notes of this person or group
        #[arg(long, conflicts_with = "id")]
        all: bool,
        /// The number of the note
        #[arg(required_unless_present = "all", conflicts_with_all = ["person", "group"])]
        id: Option<u64>,
    },
}

/// Whose notes a command is about.
#[derive(Clone, Debug, Default, Args)]
#[group(multiple = false)]
pub struct NoteOwner {
    /// Only notes of this person: CHANNEL:ID
    #[arg(long, value_name = "PERSON")]
    pub person: Option<String>,
    /// Only notes of the group with this session
    #[arg(long, value_name = "KEY")]
    pub group: Option<String>,
}

/// `belay memory list`
#[derive(Debug, Args)]
pub struct MemoryListArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The owner.
    #[command(flatten)]
    pub owner: NoteOwner,
    /// List at most this many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=i64::from(LIST_MAX)))]
    pub limit: u32,
}

/// Arguments of the `belay memory` subcommands that take a number.
#[derive(Debug, Args)]
pub struct NoteArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The number of the note
    pub id: u64,
}
