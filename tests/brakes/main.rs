//! `belay-brakes`: stops runs whose processes resist in every way, and counts the processes that survive.
//!
//! The processes are real, and the daemon's own code starts and stops them. After each stop, the process table is
//! searched for a word in the command line of every process of the run. The count therefore does not depend on how the
//! tested code finds processes. The process of another run must survive all stops.
//!
//! Reading order: `kinds` (the processes), `stops` (one stop and its checks), `figures` (the table).

mod figures;
mod kinds;
mod stops;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use belay_exec::CgroupUse;

use crate::figures::Report;

const USAGE: &str = "\
usage: belay-brakes [--stops N] [--together N] [--cgroup auto|off] [--times on|off]

  --stops N       stops in all, shared among the kinds (10000)
  --together N    stops at a time (4)
  --cgroup off    do without control groups, also where there are some
  --times off     print times, but let only counts decide: for machines that are busy";

/// The options of the command line.
#[derive(Debug)]
struct Options {
    stops: usize,
    together: usize,
    cgroup: CgroupUse,
    times: bool,
}

fn options() -> Result<Option<Options>> {
    let mut options = Options { stops: 10_000, together: 4, cgroup: CgroupUse::Auto, times: true };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value\n{USAGE}"));
        match argument.as_str() {
            "--stops" => options.stops = value()?.parse().context("--stops: a number")?,
            "--together" => options.together = value()?.parse().context("--together: a number")?,
            "--cgroup" => options.cgroup = choice(&value()?, ["auto", "off"], [CgroupUse::Auto, CgroupUse::Off])?,
            "--times" => options.times = choice(&value()?, ["on", "off"], [true, false])?,
            "-h" | "--help" => return Ok(None),
            _ => bail!("unknown argument {argument}\n{USAGE}"),
        }
    }
    Ok(Some(options))
}

fn choice<T: Copy>(word: &str, words: [&str; 2], meanings: [T; 2]) -> Result<T> {
    let known = words.iter().position(|known| *known == word);
    known.map(|at| meanings[at]).with_context(|| format!("{word}: {} or {}\n{USAGE}", words[0], words[1]))
}

fn measure() -> Result<ExitCode> {
    let Some(options) = options()? else {
        figures::print(USAGE);
        return Ok(ExitCode::SUCCESS);
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let report: Report = runtime.block_on(stops::all(&options))?;
    figures::print(&report.table());
    let problems = report.problems(options.times);
    for problem in &problems {
        figures::print(&format!("MISSED: {problem}"));
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn main() -> ExitCode {
    match measure() {
        Ok(code) => code,
        Err(error) => {
            figures::print(&format!("belay-brakes: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
