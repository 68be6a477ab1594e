//! `belay-budget`: counts what the daemon does for fixed scripts, and compares the counts with a committed table.
//!
//! The counts hardly depend on the machine: statements, pages, bytes, syncs, files, allocations. Each script runs twice
//! in a daemon of its own, once as it is and once with its system calls traced, since tracing slows it down. The daemon
//! is the real one, linked into this program, with an allocator that counts.
//!
//! Reading order: `scripts`, `table`, `counts`, `report`; then `daemon` (a measured daemon), `counted` (the daemon's
//! side), `trace` and `calls` (its system calls), `load` (how busy the machine is).

mod calls;
mod counted;
mod counts;
mod daemon;
mod load;
mod report;
mod scripts;
mod table;
mod trace;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use counts::{Counted, Figures};
use load::Load;
use scripts::Script;
use table::Table;

/// How often a script is measured before a difference counts. A busy machine may make one: a commit that comes later is
/// two commits.
const ATTEMPTS: usize = 3;

/// Longest time of a script, which ends only one that hangs: on one processor with others beside it, a script of seconds takes minutes.
const SCRIPT_LIMIT: Duration = Duration::from_secs(1800);

const USAGE: &str = "\
usage: belay-budget [--table FILE] [--only SCRIPT] [--update] [--json] [--quiet]

  --table FILE    the table (tests/budget/table.toml)
  --only SCRIPT   message, tool-round, approval, stream, routine-run, start or idle-minute
  --update        write what differs into the table
  --json          one JSON object instead of lines
  --quiet         without the figures that are only printed";

struct Options {
    table: PathBuf,
    scripts: Vec<Script>,
    update: bool,
    json: bool,
    quiet: bool,
}

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    match args.nth(1) {
        // First, since the last stage of a sandboxed command may find nothing opened: the daemon starts itself for both.
        Some(word) if word == "launch" || word == "worker" => return belay_daemon::main(std::env::args_os()),
        Some(word) if word == "daemon" => return counted::run(args),
        _ => {}
    }
    match options().and_then(|options| options.map_or_else(help, |options| budget(&options))) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("belay-budget: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn help() -> Result<ExitCode> {
    report::print(USAGE);
    Ok(ExitCode::SUCCESS)
}

fn options() -> Result<Option<Options>> {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("table.toml");
    let mut options = Options { table, scripts: Script::ALL.to_vec(), update: false, json: false, quiet: false };
    let mut arguments = std::env::args_os().skip(1).map(OsString::into_string);
    while let Some(argument) = arguments.next() {
        let argument = argument.map_err(|argument| anyhow!("unknown argument {argument:?}\n{USAGE}"))?;
        let mut value = || {
            let value = arguments.next().and_then(Result::ok);
            value.with_context(|| format!("{argument} needs a value\n{USAGE}"))
        };
        match argument.as_str() {
            "--table" => options.table = value()?.into(),
            "--only" => {
                let name = value()?;
                let known = Script::ALL.into_iter().find(|script| script.name() == name);
                options.scripts = vec![known.with_context(|| format!("there is no script {name}\n{USAGE}"))?];
            }
            // For the gate's own test: the script of a message, with a query that it does not have.
            "--with-added-query" => options.scripts = vec![Script::MessageWithQuery],
            "--update" => options.update = true,
            "--json" => options.json = true,
            "--quiet" => options.quiet = true,
            "-h" | "--help" => return Ok(None),
            _ => bail!("unknown argument {argument}\n{USAGE}"),
        }
    }
    Ok(Some(options))
}

/// Measures, compares and prints.
fn budget(options: &Options) -> Result<ExitCode> {
    let mut table = match std::fs::read_to_string(&options.table) {
        Ok(text) => Table::parse(&text).with_context(|| options.table.display().to_string())?,
        Err(error) if options.update && error.kind() == std::io::ErrorKind::NotFound => Table::default(),
        Err(error) => return Err(error).with_context(|| options.table.display().to_string()),
    };
    let measured = measure(&options.scripts, &table, options.update)?;
    let rows: Vec<_> = measured.iter().flat_map(|(script, figures)| table.compare(*script, figures)).collect();
    report::print(&match options.json {
        true => report::json(&rows, &measured),
        false => report::lines(&rows, &measured, options.quiet, options.update),
    });
    if options.update {
        table.update(&rows);
        std::fs::write(&options.table, table.text()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    Ok(if rows.iter().any(|row| row.verdict.fails()) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs the scripts one after the other. The idle minute waits beside them.
fn measure(scripts: &[Script], table: &Table, update: bool) -> Result<Vec<report::Measured>> {
    let timers = table.idle_minute();
    let again = |script: Script, mut figures: Figures| {
        for _ in 1..ATTEMPTS {
            if !table.compare(script, &figures).iter().any(|row| row.verdict.is_checked(update)) {
                break;
            }
            figures = table.nearest(script, figures, &finish(start(script, &timers)?)?);
        }
        anyhow::Ok((script, figures))
    };
    let beside = |script: Script| script == Script::Idle;
    let idle: Vec<_> = scripts.iter().filter(|script| beside(**script)).map(|script| start(*script, &timers)).collect();
    let mut measured = Vec::new();
    for script in scripts.iter().filter(|script| !beside(**script)) {
        measured.push(again(*script, finish(start(*script, &timers)?)?)?);
    }
    for run in idle {
        measured.push(again(Script::Idle, finish(run?)?)?);
    }
    Ok(measured)
}

/// Begins both runs of a script, each on a thread of its own. `timers`: what those of an idle daemon cost in a minute.
fn start(script: Script, timers: &Counted) -> Result<[JoinHandle<Result<Figures>>; 2]> {
    let timers = if script == Script::Idle { Counted::new() } else { timers.clone() };
    let run = |traced| {
        let timers = timers.clone();
        std::thread::Builder::new().name(script.name().into()).spawn(move || {
            let load = Load::now()?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let measured = runtime.block_on(async { tokio::time::timeout(SCRIPT_LIMIT, script.measure(traced)).await });
            let measured = measured.context("it takes too long").flatten();
            let measured = measured.with_context(|| format!("the script {}", script.name()))?;
            Ok(Figures { others: load.of_others(Load::now()?), ..measured.without_timers(&timers) })
        })
    };
    Ok([run(false)?, run(true)?])
}

fn finish([plain, traced]: [JoinHandle<Result<Figures>>; 2]) -> Result<Figures> {
    let [plain, traced] = [plain, traced].map(|run| run.join().map_err(|_| anyhow!("a script has panicked"))?);
    Ok(plain?.with_traced(traced?))
}
