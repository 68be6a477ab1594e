//! The arguments of the commands. [`crate::cli`] puts them together.

mod heartbeat;
mod jobs;
mod routines;
mod sessions;
mod tools;

use std::path::PathBuf;

use belay_gateway::LIST_MAX;
use belay_protocol::{DeclaredOutput, LinkId};
use clap::{Args, Subcommand};

pub(crate) use self::heartbeat::{HeartbeatArgs, HeartbeatCommand};
pub(crate) use self::jobs::{CreateJobArgs, JobArgs, JobsArgs, JobsCommand, JobsListArgs};
pub(crate) use self::routines::{RoutineArgs, RoutinesArgs, RoutinesCommand};
pub(crate) use self::sessions::{ExportArgs, SearchArgs, SessionArgs, SessionsArgs, SessionsCommand, SessionsListArgs};
pub(crate) use self::tools::{ToolsArgs, ToolsCommand};

/// What the command line says about settings.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SettingsArgs {
    /// Read this settings file too; may be given several times, later ones win
    #[arg(long = "config", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Set one value, for example --set llm.provider=rehearsal; wins over every file
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub(crate) assignments: Vec<String>,
    /// Let tools work in this directory; the same as tools.workspace, relative to the current directory
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
}

/// `belay worker`
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// The job
    #[arg(long, value_name = "ID")]
    pub(crate) job: LinkId,
    /// The socket on which the daemon answers
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: PathBuf,
}

/// `belay config …`
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the merged settings and where each came from
    Show(CheckArgs),
}

/// `belay ask`
#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    /// Settings.
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// Print the whole run as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print one JSON object with this in it instead of a text; may be given several times. TYPE is string, number,
    /// integer, boolean, object or array, one of these with [] behind it, or a JSON Schema
    #[arg(long = "output", value_name = "NAME:TYPE[=DESCRIPTION]", value_parser = DeclaredOutput::parse)]
    pub(crate) outputs: Vec<DeclaredOutput>,
    /// The message; `-` reads it from standard input
    pub(crate) text: String,
}

/// `belay check`, `belay config show`
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Settings.
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `belay check` takes.
#[derive(Debug, Args)]
pub(crate) struct CheckUnitArgs {
    /// What `config show` takes as well.
    #[command(flatten)]
    pub(crate) check: CheckArgs,
    /// Check as this systemd unit would start it: its credentials, and those of the drop-ins beside it, count as there
    #[arg(long, value_name = "FILE")]
    pub(crate) unit: Option<PathBuf>,
}

/// What every command to a running daemon takes.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ClientArgs {
    /// Where the daemon is: http://host:port, or unix:/path/of/control.sock [default: this user's control socket]
    #[arg(long, env = "BELAY_URL", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `belay send`
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// The daemon.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// The conversation it belongs to
    #[arg(long, value_name = "KEY", default_value = "cli")]
    pub(crate) session: String,
    /// Wait for the reply, print it, and exit with the verdict of the run; 75: the run waits for approval
    #[arg(long)]
    pub(crate) wait: bool,
    /// The message; `-` reads it from standard input
    pub(crate) text: String,
}

/// `belay agent`
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// The daemon.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// The conversation it belongs to
    #[arg(long, value_name = "KEY", default_value = "cli")]
    pub(crate) session: String,
    /// Show the answer as it comes; with --json each event is a line
    #[arg(long)]
    pub(crate) stream: bool,
    /// Reasoning effort of the model: off, low, medium or high
    #[arg(long, value_name = "LEVEL")]
    pub(crate) thinking: Option<String>,
    /// How the message is handled when the conversation is busy: steer, followup, collect or interrupt
    #[arg(long, value_name = "MODE")]
    pub(crate) queue: Option<String>,
    /// Time limit in seconds; 0: no limit
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<u64>,
    /// The message; `-` reads it from standard input
    pub(crate) text: String,
}

/// `belay runs`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RunsArgs {
    /// Show one run instead of the list.
    #[command(subcommand)]
    pub(crate) command: Option<RunsCommand>,
    /// The daemon.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// Only those of this conversation
    #[arg(long, value_name = "KEY")]
    pub(crate) session: Option<String>,
    /// Show whole ids; any beginning of an id that means one thing is taken by commands
    #[arg(long)]
    pub(crate) full: bool,
    /// Only those that are running, paused, completed, stopped, failed, …
    #[arg(long)]
    pub(crate) status: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(LIST_MAX)))]
    pub(crate) limit: u32,
}

/// `belay runs …`
#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// Show one run
    Show {
        /// The daemon.
        #[command(flatten)]
        client: ClientArgs,
        /// Its id, or the beginning of it
        id: String,
    },
}

/// `belay context …`
#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// Show what the model of a session would read now, and how much room it takes
    Show(ContextArgs),
}

/// `belay context show`
#[derive(Debug, Args)]
pub(crate) struct ContextArgs {
    /// The daemon.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// Print the texts too
    #[arg(long)]
    pub(crate) full: bool,
    /// The session's key
    pub(crate) session: String,
}

/// `belay approvals`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ApprovalsArgs {
    /// Something else than the list.
    #[command(subcommand)]
    pub(crate) command: Option<ApprovalsCommand>,
    /// The list.
    #[command(flatten)]
    pub(crate) list: ApprovalsListArgs,
}

/// `belay approvals …`
#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List pending approval requests
    List(ApprovalsListArgs),
    /// Show one question
    Show(ApprovalArgs),
    /// Say yes, this once
    Approve(ApprovalArgs),
    /// Say yes, and to the like in the same conversation from now on
    Always(ApprovalArgs),
    /// Say no
    Deny(ApprovalArgs),
}

/// `belay approvals list`
#[derive(Debug, Args)]
pub(crate) struct ApprovalsListArgs {
    /// The daemon.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// Only those of this conversation
    #[arg(long, value_name = "KEY")]
    pub(crate) session: Option<String>,
    /// Those that were answered, too
    #[arg(long)]
    pub(crate) all: bool,
    /// Show whole ids; any beginning of an id that means one thing is taken by commands
    #[arg(long)]
    pub(crate) full: bool,
}

/// `belay approvals show ID` and its like
#[derive(Debug, Args)]
pub(crate) struct ApprovalArgs {
    /// The daemon.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// The question's id, or the beginning of it
    pub(crate) id: String,
}

/// `belay stop`
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// The daemon.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// The run's id or the beginning of it, or the session's key
    #[arg(value_name = "RUN or SESSION", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) target: Option<String>,
    /// Everything
    #[arg(long)]
    pub(crate) all: bool,
}
