//! The command line.

use belay_cli::args::{
    AcpArgs, AgentArgs, ApprovalsArgs, ChatArgs, ClientArgs, ConsoleArgs, ContextCommand, CostsArgs, FreezeArgs,
    HeartbeatArgs, JobsArgs, LIST_MAX, LogsArgs, ManArgs, MemoryArgs, PeopleArgs, RoutinesArgs, RunsArgs, SendArgs,
    SessionsArgs, ShutdownArgs, StatusArgs, StopArgs, ThawArgs, ToolsArgs, TopArgs,
};
use belay_maintenance::{BackupCommand, MigrateArgs};
use belay_settings::SettingsArgs;
use belay_setup::{CheckUnitArgs, SetupArgs, UpgradeCommand};
use belay_stops::StopsCommand;
use clap::{Parser, Subcommand};

use crate::args::{AskArgs, ConfigCommand, McpCommand, WorkerArgs};
use crate::completions::Shell;

/// The command line reads pages of the API with as many rows as the API gives.
const _: () = assert!(LIST_MAX == belay_gateway::LIST_MAX);

/// An agent daemon that knows when to stop
#[derive(Debug, Parser)]
#[command(name = "belay", version, propagate_version = true)]
pub(crate) struct Cli {
    /// The command; none: prints where to start.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// The output of `belay` without a command.
pub(crate) const WHERE_TO_START: &str = "\
Belay is an agent daemon. Where to start:

  belay ask \"what time is it?\"   answer one message, without a daemon
  belay setup                     choose a model, check its key, and write the settings
  belay run                       start the daemon here, with a prompt
  belay chat                      open a prompt of a running daemon
  belay console                   print the address of its pages for a browser
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
    /// Print the address of the console, the pages for a browser, with a one-time link if a sign-in is needed
    Console(ConsoleArgs),
    /// Chat with the running daemon at a prompt
    Chat(ChatArgs),
    /// Send one message to the running daemon
    Send(SendArgs),
    /// Send one message to the running daemon and wait for its answer
    Agent(AgentArgs),
    /// Be the agent of an editor, by the Agent Client Protocol over standard input and output
    Acp(AcpArgs),
    /// Show what the running daemon is doing
    Status(StatusArgs),
    /// List the channels of the running daemon, with their state and the quality of their deliveries
    Channels(ClientArgs),
    /// List the daemons that share the database of the running daemon
    Nodes(ClientArgs),
    /// List recent runs, or show one
    Runs(RunsArgs),
    /// Print the newest events of all runs, and follow them
    #[command(alias = "events")]
    Logs(LogsArgs),
    /// Show the running runs, again and again
    Top(TopArgs),
    /// Show what model calls have cost, and the budgets of today
    Costs(CostsArgs),
    /// Show what the model reads besides the message
    #[command(subcommand)]
    Context(ContextCommand),
    /// List, search, export and delete sessions
    Sessions(SessionsArgs),
    /// List, search, edit, export and delete notes of persons and groups
    Memory(MemoryArgs),
    /// List the people who may write; admit a stranger by a code, or remove a person
    People(PeopleArgs),
    /// List open approval requests, or answer one
    Approvals(ApprovalsArgs),
    /// List, create, watch and cancel jobs: work in the background
    Jobs(JobsArgs),
    /// List, create, test and fire routines: rules that start work by time or event
    Routines(RoutinesArgs),
    /// Show the status of the heartbeat and what it would do now, or run it
    Heartbeat(HeartbeatArgs),
    /// List tools with their status, or disable and enable one
    Tools(ToolsArgs),
    /// Stop a run, a session, or everything
    Stop(StopArgs),
    /// Stop all work or a part of it, and begin nothing of it until the thaw; messages are kept
    Freeze(FreezeArgs),
    /// End a freeze; waiting messages are answered
    Thaw(ThawArgs),
    /// Stop the running daemon after it has finished its work
    Shutdown(ShutdownArgs),
    /// Ask for provider, key, model, workspace and Telegram bot, check the answers, and write the settings file
    #[command(aliases = ["init", "login", "onboard"])]
    Setup(SetupArgs),
    /// Check the settings and their requirements, without starting
    #[command(alias = "doctor")]
    Check(CheckUnitArgs),
    /// Show the settings
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Apply the stop rules to recorded runs
    #[command(subcommand)]
    Stops(StopsCommand),
    /// List and approve the tools of MCP servers, and log in at them
    #[command(subcommand)]
    Mcp(McpCommand),
    /// Make, verify, list and restore backups
    #[command(subcommand)]
    Backup(BackupCommand),
    /// Copy the store to another database while no daemon runs, and verify the copy
    Migrate(MigrateArgs),
    /// Say what this version of Belay would change in the data and settings, without changing anything
    #[command(subcommand, alias = "update")]
    Upgrade(UpgradeCommand),
    /// Carry out a job for the daemon, which starts this command in a sandbox; the job's token is read from standard
    /// input
    #[command(hide = true)]
    Worker(WorkerArgs),
    /// Print the completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page of belay, or write the pages of all commands into a directory
    Man(ManArgs),
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
            ("belay ask", true), // from standard input
            ("belay ask --output n:integer=how_many --output names:string[] hello", true),
            ("belay ask --output n:number", true),
            ("belay ask --output n:text hello", false),
            ("belay ask --output number hello", false),
            ("belay send --session me --wait hello", true),
            ("belay send --url http://h:1 --json -", true),
            ("belay send", false),
            ("belay agent --session me --stream --thinking high --queue collect --timeout 60 --json hello", true),
            ("belay agent --timeout soon hello", false),
            ("belay agent", false),
            ("belay chat", true),
            ("belay chat --session me --url unix:/run/belay/control.sock", true),
            ("belay chat hello", false),
            ("belay acp --url http://h:1", true),
            ("belay acp x", false),
            ("belay status --json", true),
            ("belay runs --session me --status failed --limit 5", true),
            ("belay runs --limit 0", false),
            ("belay runs --limit 500", true),
            ("belay runs --limit 10000", true), // several pages of the API
            ("belay runs --limit 10001", false),
            ("belay runs --reason user_stop --since 7d --until 2026-11-20", true),
            ("belay runs --since 12h --follow --json", true),
            ("belay runs --follow --until 1d", false),
            ("belay logs -f -n 5 --session me --json", true),
            ("belay logs -n -1", false),
            ("belay top --interval 1", true),
            ("belay top --once --json", true),
            ("belay top --interval 0", false),
            ("belay nodes", true),
            ("belay nodes --json", true),
            ("belay costs", true),
            ("belay costs --by person --since 7d --json", true),
            ("belay costs --by planet", false),
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
            ("belay sessions --hidden", true),
            ("belay sessions list --hidden --limit 3", true),
            ("belay sessions hide me", true),
            ("belay sessions hide me --restore", true),
            ("belay sessions hide", false),
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
            ("belay jobs list --limit 10001", false),
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
            ("belay routines fire tick --wait --json", true),
            ("belay routines runs tick --status failed --limit 5", true),
            ("belay routines next --count 3 tick", true),
            ("belay routines next", true),
            ("belay routines test tick --at 2026-12-01T09:00", true),
            ("belay routines test --file r.toml --at 2026-12-01T09:00", true),
            ("belay routines test tick --file r.toml --at 2026-12-01T09:00", false),
            ("belay routines test tick", false),
            ("belay routines test --at 2026-12-01T09:00", false),
            ("belay memory", true),
            ("belay memory --person telegram:42 --json", true),
            ("belay memory list --group g --person p", false),
            ("belay memory show 7", true),
            ("belay memory show seven", false),
            ("belay memory search blue cat", true),
            ("belay memory search", false),
            ("belay memory edit 7 new --json", true),
            ("belay memory export --group g -o f", true),
            ("belay memory delete 7", true),
            ("belay memory delete --all --person telegram:42", true),
            ("belay memory delete --all 7", false),
            ("belay memory delete --person telegram:42", false),
            ("belay memory delete", false),
            ("belay stop", false),
            ("belay stop --all", true),
            ("belay stop me", true),
            ("belay stop me --all", false),
            ("belay channels --json", true),
            ("belay people", true),
            ("belay people list --json", true),
            ("belay people pair 23AZ2Z2Z", true),
            ("belay people pair", false),
            ("belay people remove telegram:42", true),
            ("belay people remove", false),
            ("belay freeze --reason maintenance --json", true),
            ("belay freeze --person telegram:42", true),
            ("belay freeze --person a --channel b", false),
            ("belay freeze --list", true),
            ("belay freeze --list --reason x", false),
            ("belay thaw --routine tick", true),
            ("belay thaw --reason x", false),
            ("belay shutdown", true),
            ("belay check --json --set a.b=c", true),
            ("belay setup", true),
            ("belay setup --provider openai --key-file k --model m --workspace w --yes --json", true),
            ("belay setup --provider ollama --base-url http://h:1 --no-key --config f --unit u --yes", true),
            ("belay setup --telegram-token-file t --telegram-user 42 --telegram-user 43", true),
            ("belay setup --telegram-user alice", false),
            ("belay setup --no-telegram --telegram-user 42", false),
            ("belay setup --key-file k --key-stdin", false),
            ("belay setup --key-stdin --no-key", false),
            ("belay setup --key secret", false),
            ("belay config show --config x", true),
            ("belay stops check", true),
            ("belay stops check --with-limits --rules r.toml --set limits.usd_per_day=1 run.jsonl", true),
            ("belay stops check --run 0193", true),
            ("belay stops check --run 0193 run.jsonl", false),
            ("belay stops import --format openai --index 3 -o out.jsonl in.json", true),
            ("belay stops import --format klingon in.json", false),
            ("belay stops import", false),
            ("belay stops eval --markdown --failures --rules r.toml set", true),
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
            ("belay mcp login", false),
            ("belay mcp login tickets --no-browser --json", true),
            ("belay mcp logout tickets --url http://h:1", true),
            ("belay mcp", false),
            ("belay mcp serve --url http://h:1", true),
            ("belay mcp serve x", false),
            ("belay worker --job 0193e0e0-0000-7000-8000-000000000000 --socket /x", true),
            ("belay worker --job 7 --socket /x", false),
            ("belay worker", false),
            ("belay backup create --to /x --with-key --json", true),
            ("belay backup verify f --json", true),
            ("belay backup verify", false),
            ("belay backup restore f --data d --force", true),
            ("belay backup restore --before-migration", true),
            ("belay backup restore --before-migration f", false),
            ("belay backup restore --roll-back", true),
            ("belay backup restore --roll-back f", false),
            ("belay backup restore", false),
            ("belay backup list --json", true),
            ("belay migrate sqlite:///a postgres://u@h/d --json", true),
            ("belay migrate sqlite:///a", false),
            ("belay migrate sqlite:///a sqlite:///b --force", false),
            ("belay upgrade check --json", true),
            ("belay upgrade", false),
            ("belay completions bash", true),
            ("belay completions klingon", false),
            ("belay man", true),
            ("belay man --dir d", true),
            ("belay man d", false),
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
    fn words_of_other_programs_are_understood_and_not_listed() {
        for (line, command) in [
            ("belay doctor --json", "belay check --json"),
            ("belay init --yes", "belay setup --yes"),
            ("belay login --yes", "belay setup --yes"),
            ("belay onboard --yes", "belay setup --yes"),
            ("belay update check", "belay upgrade check"),
            ("belay events -n 5", "belay logs -n 5"),
        ] {
            let understood = |line| format!("{:?}", parse(line).unwrap().command);
            assert_eq!(understood(line), understood(command), "{line}");
        }
        let help = Cli::command().render_long_help().to_string();
        for word in ["doctor", "init", "login", "onboard", "update", "events"] {
            assert!(!help.lines().any(|line| line.trim_start().starts_with(word)), "{word} in {help}");
        }
    }

    #[test]
    fn a_mistyped_command_or_option_is_answered_with_near_ones() {
        for (line, kind, near) in [
            ("belay statsu", "subcommand", "'status'"),
            ("belay rutines", "subcommand", "'routines'"),
            ("belay runs --sesion x", "argument", "'--session'"),
            ("belay routines fier x", "subcommand", "'fire'"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            let tip = error.lines().find(|line| line.contains("tip: ")).unwrap_or_default();
            assert!(tip.contains(&format!("similar {kind}")) && tip.contains(near), "{line}: {error}");
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
