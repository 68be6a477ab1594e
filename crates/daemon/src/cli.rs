//! The command line.

mod heartbeat;
mod jobs;
mod routines;
mod sessions;
mod tools;

use std::path::PathBuf;

use belay_gateway::LIST_MAX;
use belay_protocol::{DeclaredOutput, LinkId};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

pub(crate) use self::heartbeat::{HeartbeatArgs, HeartbeatCommand};
pub(crate) use self::jobs::{CreateJobArgs, JobArgs, JobsArgs, JobsCommand, JobsListArgs};
pub(crate) use self::routines::{RoutineArgs, RoutinesArgs, RoutinesCommand};
pub(crate) use self::sessions::{ExportArgs, SearchArgs, SessionArgs, SessionsArgs, SessionsCommand, SessionsListArgs};
pub(crate) use self::tools::{ToolsArgs, ToolsCommand};
use crate::mcp::McpCommand;
use crate::settings::SettingsArgs;
use crate::stops::StopsCommand;

/// An agent daemon that knows when to stop
#[derive(Debug, Parser)]
#[command(name = "belay", version, propagate_version = true)]
pub(crate) struct Cli {
    /// What to do; none: say where to start.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// The answer to `belay` without a command.
pub(crate) const WHERE_TO_START: &str = "\
Belay is an agent daemon. Where to start:

  belay ask \"what time is it?\"   answer one message, without a daemon
  belay run                       start the daemon here, with a prompt
  belay check                     check the settings, and find out which model would answer
  belay status                    show what a running daemon is doing
  belay help                      list every command

No model is needed to try it: without one, a built-in stand-in answers and says that it is one.";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the daemon in the foreground
    Run(SettingsArgs),
    /// Answer one message without a daemon: start, answer, end
    Ask(AskArgs),
    /// Send one message to the running daemon
    Send(SendArgs),
    /// Send one message to the running daemon and stay for its answer
    Agent(AgentArgs),
    /// Show what the running daemon is doing
    Status(ClientArgs),
    /// List recent runs, or show one
    Runs(RunsArgs),
    /// What the model is told besides the message
    #[command(subcommand)]
    Context(ContextCommand),
    /// List sessions; find, read out and delete what they have said
    Sessions(SessionsArgs),
    /// List the questions that wait for an answer, or answer one
    Approvals(ApprovalsArgs),
    /// List jobs, or make, watch and cancel one: work that goes on by itself
    Jobs(JobsArgs),
    /// List routines, or make, test and fire one: rules that start work by time or event
    Routines(RoutinesArgs),
    /// Show how the heartbeat stands and what it would do now, or have it beat
    Heartbeat(HeartbeatArgs),
    /// List tools and how they get on, or switch one off and on
    Tools(ToolsArgs),
    /// Stop a run, a session, or everything
    Stop(StopArgs),
    /// Let the running daemon finish what it does and end
    Shutdown(ClientArgs),
    /// Check the settings, and what they need, without starting
    Check(CheckUnitArgs),
    /// Look at the settings
    #[command(subcommand)]
    Config(ConfigCommand),
    /// What the stop rules say of recorded runs
    #[command(subcommand)]
    Stops(StopsCommand),
    /// What MCP servers offer, and approving it
    #[command(subcommand)]
    Mcp(McpCommand),
    /// Carry out a job for the daemon, which starts this itself behind walls; the job's token is read from standard input
    #[command(hide = true)]
    Worker(WorkerArgs),
    /// Print the completions for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
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
    /// Wait for the reply, print it, and exit with the verdict of the run; a run that rests on a question is 75
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
    /// How hard the model thinks: off, low, medium or high
    #[arg(long, value_name = "LEVEL")]
    pub(crate) thinking: Option<String>,
    /// What becomes of the message when the conversation is busy: steer, followup, collect or interrupt
    #[arg(long, value_name = "MODE")]
    pub(crate) queue: Option<String>,
    /// Most seconds at work; 0 is no limit
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
    /// Show what the model of a session would be told now, and what it takes
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
    /// List the questions that wait for an answer
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn commands_are_understood_or_refused_with_2() {
        for (line, ok) in [
            ("belay run", true),
            ("belay run --config a.toml --config b.toml --set llm.model=x --set gateway.listen=127.0.0.1:0", true),
            ("belay run --port 1", false),
            ("belay run --workspace .", true),
            ("belay ask --workspace /srv/project hello", true),
            ("belay ask hello", true),
            ("belay ask", false),
            ("belay ask --output n:integer=how_many --output names:string[] hello", true),
            ("belay ask --output n:number", false),
            ("belay ask --output n:text hello", false),
            ("belay ask --output number hello", false),
            ("belay send --session me --wait hello", true),
            ("belay send --url http://h:1 --json -", true),
            ("belay send", false),
            ("belay agent --session me --stream --thinking high --queue collect --timeout 60 --json hello", true),
            ("belay agent --timeout soon hello", false),
            ("belay agent", false),
            ("belay status --json", true),
            ("belay runs --session me --status failed --limit 5", true),
            ("belay runs --limit 0", false),
            ("belay runs --limit 500", true),
            ("belay runs --limit 501", false), // the API takes no more
            ("belay runs show 0193", true),
            ("belay runs show --json 0193", true),
            ("belay context show me", true),
            ("belay context show --full --json me", true),
            ("belay context show", false),
            ("belay context", false),
            ("belay sessions", true),
            ("belay sessions --limit 3 --json", true),
            ("belay sessions list", true),
            ("belay sessions --all", true),
            ("belay sessions list --all --limit 3", true),
            ("belay sessions show me", true),
            ("belay sessions show", false),
            ("belay sessions search", false),
            ("belay sessions search --session me --limit 5 two words", true),
            ("belay sessions export --format jsonl --all-threads -o out.jsonl me", true),
            ("belay sessions export --format pdf me", false),
            ("belay sessions delete me --url http://h:1", true),
            ("belay sessions prune --dry-run", true),
            ("belay sessions forget-secrets me mail", true),
            ("belay sessions forget-secrets", false),
            ("belay approvals", true),
            ("belay approvals --all --session me --json", true),
            ("belay approvals list --all", true),
            ("belay approvals show 0193 --json", true),
            ("belay approvals approve 0193", true),
            ("belay approvals always --url http://h:1 0193", true),
            ("belay approvals deny", false),
            ("belay approvals perhaps 0193", false),
            ("belay approvals --all show 0193", false),
            ("belay jobs", true),
            ("belay jobs --state pending,stuck --session me --limit 5 --json", true),
            ("belay jobs list --limit 501", false),
            ("belay jobs show 0193 --json", true),
            (
                "belay jobs create --title T --plan --worker --max-steps 9 --max-minutes 60 --session me --watch task",
                true,
            ),
            ("belay jobs create", false),
            ("belay jobs create --max-steps -1 task", false),
            ("belay jobs tell 0193 hello", true),
            ("belay jobs tell 0193", false),
            ("belay jobs watch --url http://h:1 0193", true),
            ("belay jobs cancel", false),
            ("belay jobs --json cancel 0193", false),
            ("belay heartbeat --json", true),
            ("belay heartbeat now", true),
            ("belay heartbeat later", false),
            ("belay routines", true),
            ("belay routines list --json", true),
            ("belay routines create --file r.toml --replace", true),
            ("belay routines create r.toml", false),
            ("belay routines fire tick --payload now", true),
            ("belay routines runs tick --status failed --limit 5", true),
            ("belay routines next --count 3 tick", true),
            ("belay routines next", true),
            ("belay routines test tick --at 2026-12-01T09:00", true),
            ("belay routines test --file r.toml --at 2026-12-01T09:00", true),
            ("belay routines test tick --file r.toml --at 2026-12-01T09:00", false),
            ("belay routines test tick", false),
            ("belay routines test --at 2026-12-01T09:00", false),
            ("belay stop", false),
            ("belay stop --all", true),
            ("belay stop me", true),
            ("belay stop me --all", false),
            ("belay shutdown", true),
            ("belay check --json --set a.b=c", true),
            ("belay config show --config x", true),
            ("belay stops check", true),
            ("belay stops check --with-limits --rules r.toml --set limits.usd_per_day=1 run.jsonl", true),
            ("belay stops check --run 0193", true),
            ("belay stops check --run 0193 run.jsonl", false),
            ("belay stops import --format openai --index 3 -o out.jsonl in.json", true),
            ("belay stops import --format klingon in.json", false),
            ("belay stops import", false),
            ("belay stops eval --markdown --failures --mutations 3 --seed 7 set", true),
            ("belay stops eval --failures=all set", true),
            ("belay stops eval --without words --without echo set", true),
            ("belay stops eval --without everything set", false),
            ("belay stops eval --json --markdown set", false),
            ("belay stops eval", false),
            ("belay stops", false),
            ("belay mcp list", true),
            ("belay mcp list --json files", true),
            ("belay mcp approve", false),
            ("belay mcp approve files read --set tools.max_read_lines=1", true),
            ("belay mcp", false),
            ("belay mcp serve --url http://h:1", true),
            ("belay mcp serve x", false),
            ("belay worker --job 0193e0e0-0000-7000-8000-000000000000 --socket /x", true),
            ("belay worker --job 7 --socket /x", false),
            ("belay worker", false),
            ("belay completions bash", true),
            ("belay completions klingon", false),
            ("belay dance", false),
        ] {
            match parse(line) {
                Ok(_) => assert!(ok, "{line}"),
                Err(error) => {
                    assert!(!ok, "{line}: {error}");
                    assert_eq!(error.exit_code(), 2, "{line}");
                }
            }
        }
    }

    #[test]
    fn files_and_assignments_keep_their_order() {
        let Some(Command::Run(args)) =
            parse("belay run --config a --set x.y=1 --config b --set x.y=2").unwrap().command
        else {
            panic!("run");
        };
        assert_eq!(args.files, [std::path::Path::new("a"), std::path::Path::new("b")]);
        assert_eq!(args.assignments, ["x.y=1", "x.y=2"]);
    }
}
