//! The program `belay`: the command line, and the composition root.
//!
//! **For**: building the daemon, and running it for people and service managers. It is a library, so that a program that
//! measures the daemon can run it with an allocator of its own (`tests/budget`).
//!
//! **Does not know**: how any part works. It decides nothing about a message.
//!
//! Reading order: here → [`cli`] → [`wiring`] → [`run`] → [`reload`] → [`ask`] → [`worker`], which runs in a process of its own. The
//! settings and most commands are crates: `belay_settings`, `belay_setup`, `belay_cli`, `belay_stops`, `belay_maintenance`.

#[cfg_attr(not(feature = "acp"), path = "no_acp.rs")]
mod acp;
mod args;
mod ask;
#[cfg(test)]
mod channel_table;
mod cli;
#[cfg_attr(not(feature = "manual"), path = "no_completions.rs")]
mod completions;
#[cfg_attr(not(feature = "console"), path = "no_console.rs")]
mod console;
mod launch;
mod platform_people;
mod reload;
mod routine_times;
mod run;
mod version;
mod wiring;
mod worker;

use std::ffi::OsString;
use std::future::Future;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use belay_agent::submission::{menu, words};
use belay_cli::args::{ApprovalsArgs, ApprovalsCommand, ContextCommand, HeartbeatCommand, RunsCommand};
use belay_cli::{client, man, mcp_serve};
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{self, Output};
use belay_protocol::Decision;
use belay_setup::UpgradeCommand;
use belay_stops::StopsCommand;
use clap::{CommandFactory, Parser};
use tokio::runtime::{Builder, Runtime};

use cli::{Cli, Command, WHERE_TO_START};

use crate::args::{ConfigCommand, McpCommand};

/// Most worker threads of the daemon. 8: it waits for models far more than it computes, and each thread keeps memory.
const WORKERS_MAX: usize = 8;

/// How long the end waits for a thread that is blocked in a read of the terminal, which nothing can interrupt.
const LAST_THREADS: Duration = Duration::from_millis(100);

/// Runs the program with these arguments, the program's name first. Returns its exit code.
///
/// Must be called first in `main`: the last stage of a sandboxed command may find nothing read, opened or started.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = version::with_flag(args.into_iter().collect());
    if let Some(code) = launch::become_command(args.iter().cloned()) {
        return code;
    }
    // Before anything can open a TLS connection. An error means that a provider is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let env = Environment::of_process();
    let write_error = OnceLock::new();
    let out = Output::stdout(&env, &write_error);
    let done = if version::is_asked(args.get(1..).unwrap_or_default()) {
        out.line(&version::long());
        Ok(Exit::Fine)
    } else {
        match Cli::parse_from(args).command {
            Some(chosen) => command(chosen, &env, out),
            None => {
                out.line(WHERE_TO_START);
                Ok(Exit::Fine)
            }
        }
    };
    let exit = done.unwrap_or_else(|failure| {
        output::print_error(&failure.to_string());
        failure.exit
    });
    match (write_error.get(), exit) {
        (None, exit) => exit.into(),
        // A result that was not written is no success: the disk behind stdout is full or broken.
        (Some(error), exit) => {
            output::note(&format!("the result cannot be written to standard output: {error}"));
            if exit == Exit::Fine { Exit::Internal.into() } else { exit.into() }
        }
    }
}

fn command(command: Command, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    match command {
        Command::Run(args) => block_on(many_threads(), run::run(&args, env)),
        Command::Ask(args) => block_on(many_threads(), ask::ask(&args, env, out)),
        Command::Setup(args) => block_on(one_thread(), belay_setup::setup(&args, env, out)),
        Command::Check(args) => block_on(one_thread(), belay_setup::check(&args, env, out)),
        Command::Config(ConfigCommand::Show(args)) => belay_settings::show(&args, env, out),
        Command::Chat(args) => block_on(one_thread(), client::chat(&args, words().collect(), env)),
        Command::Acp(args) => block_on(one_thread(), acp::serve(&args, menu(), env)),
        Command::Agent(args) => block_on(one_thread(), client::agent(&args, env, out)),
        Command::Send(args) => block_on(one_thread(), client::send(&args, env, out)),
        Command::Status(args) => block_on(one_thread(), client::status(&args, env, out)),
        Command::Channels(args) => block_on(one_thread(), client::channels(&args, env, out)),
        Command::Nodes(args) => block_on(one_thread(), client::nodes(&args, env, out)),
        Command::Runs(args) => match &args.command {
            None => block_on(one_thread(), client::runs_list(&args, env, out)),
            Some(RunsCommand::Show { client, id, timeline }) => {
                block_on(one_thread(), client::runs_show(client, id, *timeline, env, out))
            }
        },
        Command::Logs(args) => block_on(one_thread(), client::logs(&args, env, out)),
        Command::Top(args) => block_on(one_thread(), client::top(&args, env, out)),
        Command::Console(args) => block_on(one_thread(), console::address(&args, env, out)),
        Command::Costs(args) => block_on(one_thread(), client::costs(&args, env, out)),
        Command::Context(ContextCommand::Show(args)) => block_on(one_thread(), client::context_show(&args, env, out)),
        Command::Memory(args) => match &args.command {
            None => block_on(one_thread(), client::memory_list(&args.list, env, out)),
            Some(command) => block_on(one_thread(), client::memory_one(command, env, out)),
        },
        Command::Sessions(args) => match &args.command {
            None => block_on(one_thread(), client::sessions_list(&args.list, env, out)),
            Some(command) => block_on(one_thread(), client::sessions_one(command, env, out)),
        },
        Command::People(args) => block_on(one_thread(), client::people(&args, env, out)),
        Command::Approvals(args) => block_on(one_thread(), approvals(&args, env, out)),
        Command::Tools(args) => match &args.command {
            None => block_on(one_thread(), client::tools_list(&args.client, env, out)),
            Some(command) => block_on(one_thread(), client::tools_one(command, env, out)),
        },
        Command::Jobs(args) => match &args.command {
            None => block_on(one_thread(), client::jobs_list(&args.list, env, out)),
            Some(command) => block_on(one_thread(), client::jobs_one(command, env, out)),
        },
        Command::Routines(args) => match &args.command {
            None => block_on(one_thread(), client::routines_list(&args.client, env, out)),
            Some(command) => block_on(one_thread(), client::routines_one(command, routine_times::tested, env, out)),
        },
        Command::Heartbeat(args) => match &args.command {
            None => block_on(one_thread(), client::heartbeat_show(&args.client, env, out)),
            Some(HeartbeatCommand::Now(client)) => block_on(one_thread(), client::heartbeat_now(client, env, out)),
        },
        Command::Stop(args) => block_on(one_thread(), client::stop(&args, env, out)),
        Command::Freeze(args) => block_on(one_thread(), client::freeze(&args, env, out)),
        Command::Thaw(args) => block_on(one_thread(), client::thaw(&args, env, out)),
        Command::Shutdown(args) => block_on(one_thread(), client::shutdown(&args, env, out)),
        Command::Stops(StopsCommand::Check(args)) => block_on(one_thread(), belay_stops::check(&args, env, out)),
        Command::Stops(StopsCommand::Import(args)) => belay_stops::import(&args, out),
        Command::Stops(StopsCommand::Eval(args)) => belay_stops::eval(&args, out),
        Command::Mcp(McpCommand::List(args)) => block_on(one_thread(), belay_setup::mcp_list(&args, env, out)),
        Command::Mcp(McpCommand::Approve(args)) => block_on(one_thread(), belay_setup::mcp_approve(&args, env, out)),
        Command::Mcp(McpCommand::Login(args)) => block_on(one_thread(), client::mcp_login(&args, env, out)),
        Command::Mcp(McpCommand::Logout(args)) => block_on(one_thread(), client::mcp_logout(&args, env, out)),
        Command::Mcp(McpCommand::Serve(args)) => block_on(one_thread(), mcp_serve::serve(&args, env)),
        Command::Backup(command) => block_on(one_thread(), belay_maintenance::backup(&command, env, out)),
        Command::Migrate(args) => belay_maintenance::migrate(&args, env, out),
        Command::Upgrade(UpgradeCommand::Check(args)) => belay_setup::upgrade_check(&args, env, out),
        Command::Worker(args) => block_on(one_thread(), worker::worker(&args)),
        Command::Completions { shell } => completions::print(shell, Cli::command(), out),
        Command::Man(args) => block_on(one_thread(), man::man(Cli::command(), &args, out)),
    }
}

async fn approvals(args: &ApprovalsArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    match &args.command {
        None => client::approvals_list(&args.list, env, out).await,
        Some(ApprovalsCommand::List(list)) => client::approvals_list(list, env, out).await,
        Some(ApprovalsCommand::Show(one)) => client::approvals_show(one, env, out).await,
        Some(ApprovalsCommand::Approve(one)) => client::approvals_approve(one, env, out).await,
        Some(ApprovalsCommand::Always(one)) => client::approvals_answer(one, Decision::Always, env, out).await,
        Some(ApprovalsCommand::Deny(one)) => client::approvals_answer(one, Decision::Deny, env, out).await,
    }
}

/// The daemon's runtime.
fn many_threads() -> std::io::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Builder::new_multi_thread().worker_threads(cores.min(WORKERS_MAX)).thread_name("belay").enable_all().build()
}

/// A client's runtime: one thread is enough.
fn one_thread() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

fn block_on<F>(runtime: std::io::Result<Runtime>, work: F) -> Result<Exit, Failure>
where
    F: Future<Output = Result<Exit, Failure>>,
{
    let runtime =
        runtime.map_err(|error| Failure::new(Exit::Internal, format!("no threads can be started: {error}")))?;
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(LAST_THREADS);
    done
}
