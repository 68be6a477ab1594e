//! The arguments of the commands for a running daemon.

mod console;
mod costs;
mod heartbeat;
mod jobs;
mod man;
mod mcp;
mod memory;
mod people;
mod routines;
mod sessions;
mod tools;
mod watch;

use clap::{Args, Subcommand};

pub use self::console::ConsoleArgs;
pub use self::costs::{CostKeyArg, CostsArgs};
pub use self::heartbeat::{HeartbeatArgs, HeartbeatCommand};
pub use self::jobs::{CreateJobArgs, JobArgs, JobsArgs, JobsCommand, JobsListArgs};
pub use self::man::ManArgs;
pub use self::mcp::{LoginArgs, LogoutArgs, ServeArgs};
pub use self::memory::{MemoryArgs, MemoryCommand, MemoryListArgs, NoteArgs, NoteOwner};
pub use self::people::{PeopleArgs, PeopleCommand};
pub use self::routines::{CreateRoutineArgs, RoutineArgs, RoutinesArgs, RoutinesCommand};
pub use self::sessions::{ExportArgs, SearchArgs, SessionArgs, SessionsArgs, SessionsCommand, SessionsListArgs};
pub use self::tools::{ToolsArgs, ToolsCommand};
pub use self::watch::{LogsArgs, TopArgs};

/// Most rows that a command lists. 10,000: some seconds, and a table that a person can still search. The API has at most
/// 500 rows in a page, so the client reads several pages.
pub const ROWS_MAX: u32 = 10_000;

/// Most rows of a page of the API.
pub const LIST_MAX: u32 = 500;

/// The arguments of every command to a running daemon.
#[derive(Clone, Debug, Default, Args)]
pub struct ClientArgs {
    /// The address of the daemon: http://host:port, or unix:/path/of/control.sock [default: this user's control socket]
    #[arg(long, env = "BELAY_URL", value_name = "URL")]
    pub url: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `belay shutdown`
#[derive(Debug, Args)]
pub struct ShutdownArgs {
    /// Do not wait for the end of the daemon
    #[arg(long)]
    pub no_wait: bool,
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// `belay status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// End with exit code 1 if a part does not work as it should
    #[arg(long)]
    pub check: bool,
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// `belay chat`
#[derive(Debug, Args)]
pub struct ChatArgs {
    /// The address of the daemon: http://host:port, or unix:/path/of/control.sock [default: this user's control socket]
    #[arg(long, env = "BELAY_URL", value_name = "URL")]
    pub url: Option<String>,
    /// The conversation [default: cli; client with a token that is not the operator's]
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
}

/// `belay acp`
#[derive(Clone, Debug, Args)]
pub struct AcpArgs {
    /// The address of the daemon: http://host:port, or unix:/path/of/control.sock [default: this user's control socket]
    #[arg(long, env = "BELAY_URL", value_name = "URL")]
    pub url: Option<String>,
}

/// `belay send`
#[derive(Debug, Args)]
pub struct SendArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The conversation that the message belongs to [default: cli; client with a token that is not the operator's]
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
    /// Wait for the reply, print it, and exit with the verdict of the run; 75: the run waits for approval
    #[arg(long)]
    pub wait: bool,
    /// The goal of the message.
    #[command(flatten)]
    pub goal: GoalArgs,
    /// The message; `-` reads it from standard input
    pub text: String,
}

/// The goal of a message.
#[derive(Debug, Default, Args)]
pub struct GoalArgs {
    /// Work until this holds: `run COMMAND`, `outputs NAME:TYPE` or `judge "CRITERION"`; `and` joins several
    #[arg(long, value_name = "CHECK")]
    pub until: Option<String>,
    /// Most attempts of the goal, 1 to 100 [default: 5]
    #[arg(long, value_name = "N", requires = "until")]
    pub attempts: Option<u32>,
    /// Most US dollars of the goal
    #[arg(long, value_name = "X", requires = "until")]
    pub usd: Option<String>,
    /// Most minutes of work for the goal
    #[arg(long, value_name = "N", requires = "until")]
    pub minutes: Option<u64>,
    /// The same in seconds
    #[arg(long, value_name = "N", requires = "until", conflicts_with = "minutes")]
    pub seconds: Option<u64>,
}

/// `belay agent`
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The conversation that the message belongs to [default: cli; client with a token that is not the operator's]
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
    /// Show the answer while it is written; with --json print each event as a line
    #[arg(long)]
    pub stream: bool,
    /// Reasoning effort of the model: off, low, medium or high
    #[arg(long, value_name = "LEVEL")]
    pub thinking: Option<String>,
    /// How the message is handled when the conversation is busy: steer, followup, collect or interrupt
    #[arg(long, value_name = "MODE")]
    pub queue: Option<String>,
    /// Time limit in seconds; 0: no limit
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
    /// The message; `-` reads it from standard input
    pub text: String,
}

/// `belay runs`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct RunsArgs {
    /// Show one run instead of the list.
    #[command(subcommand)]
    pub command: Option<RunsCommand>,
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// List only runs of this conversation
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
    /// Show whole ids; commands also accept the beginning of an id if only one id begins so
    #[arg(long)]
    pub full: bool,
    /// List only runs with one of these statuses: running, paused, completed, stopped, failed, … (a comma list)
    #[arg(long)]
    pub status: Option<String>,
    /// List only runs that have ended for one of these reasons, for example user_stop (a comma list)
    #[arg(long)]
    pub reason: Option<String>,
    /// List only runs that were accepted since then: 30m, 12h, 7d, or a date
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// List only runs that were accepted before then
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// List at most this many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(ROWS_MAX)))]
    pub limit: u32,
    /// List the oldest first, and go on with each run that ends, until it is interrupted
    #[arg(long, conflicts_with = "until")]
    pub follow: bool,
}

/// `belay runs …`
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// Show one run
    Show {
        /// The daemon.
        #[command(flatten)]
        client: ClientArgs,
        /// Show its wait, model calls, tool calls, questions, subagents and steps of a plan as a picture
        #[arg(long)]
        timeline: bool,
        /// The run's id, or the beginning of it
        id: String,
    },
}

/// `belay context …`
#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// Show what the model of a session would read now, and how many tokens each part takes
    Show(ContextArgs),
}

/// `belay context show`
#[derive(Debug, Args)]
pub struct ContextArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Print the texts too
    #[arg(long)]
    pub full: bool,
    /// The session's key
    pub session: String,
}

/// `belay approvals`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ApprovalsArgs {
    /// Another subcommand than the list.
    #[command(subcommand)]
    pub command: Option<ApprovalsCommand>,
    /// The list.
    #[command(flatten)]
    pub list: ApprovalsListArgs,
}

/// `belay approvals …`
#[derive(Debug, Subcommand)]
pub enum ApprovalsCommand {
    /// List pending approval requests
    List(ApprovalsListArgs),
    /// Show one approval request
    Show(ApprovalArgs),
    /// Approve this call once, or fill in a form of an MCP server
    Approve(ApproveArgs),
    /// Approve this call, and similar calls in the same conversation from now on
    Always(ApprovalArgs),
    /// Deny this call
    Deny(ApprovalArgs),
}

/// `belay approvals approve`
#[derive(Debug, Args)]
pub struct ApproveArgs {
    /// The question.
    #[command(flatten)]
    pub question: ApprovalArgs,
    /// A field of the form and its value. Everybody on the machine can read arguments: no secrets
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    pub set: Vec<String>,
}

/// `belay approvals list`
#[derive(Debug, Args)]
pub struct ApprovalsListArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// List only requests of this conversation
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
    /// List answered requests too
    #[arg(long)]
    pub all: bool,
    /// Show whole ids; commands also accept the beginning of an id if only one id begins so
    #[arg(long)]
    pub full: bool,
}

/// Arguments of `belay approvals show ID`, `approve ID`, `always ID` and `deny ID`.
#[derive(Debug, Args)]
pub struct ApprovalArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The request's id, or the beginning or the end of it
    pub id: String,
}

/// `belay freeze` and `belay thaw`: what they are about. Without a part: everything.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct FrozenPart {
    /// Only the messages and background work of this person: ID, or CHANNEL:ID
    #[arg(long, value_name = "PERSON")]
    pub person: Option<String>,
    /// Only the messages of this channel
    #[arg(long, value_name = "CHANNEL")]
    pub channel: Option<String>,
    /// Only this routine
    #[arg(long, value_name = "NAME")]
    pub routine: Option<String>,
}

/// `belay freeze`
#[derive(Debug, Args)]
pub struct FreezeArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The part.
    #[command(flatten)]
    pub part: FrozenPart,
    /// The reason, which people read when they write
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// List what is frozen, with the receipts, and change nothing
    #[arg(long, conflicts_with_all = ["person", "channel", "routine", "reason"])]
    pub list: bool,
    /// List also the freezes that have ended
    #[arg(long, requires = "list")]
    pub all: bool,
}

/// `belay thaw`
#[derive(Debug, Args)]
pub struct ThawArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The part.
    #[command(flatten)]
    pub part: FrozenPart,
}

/// `belay stop`
#[derive(Debug, Args)]
pub struct StopArgs {
    /// The daemon.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The run's id or the beginning of it, or the session's key
    #[arg(value_name = "RUN or SESSION", required_unless_present = "all", conflicts_with = "all")]
    pub target: Option<String>,
    /// Stop everything
    #[arg(long)]
    pub all: bool,
}
