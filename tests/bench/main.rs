//! `belay-bench`: measures what the daemon adds to a message, with a model that answers at once.
//!
//! Everything runs on this machine at the same time: a scripted model server and the load generator in this process,
//! each on a thread of its own, and the daemon as a child process with an empty data directory. Each figure is
//! compared with a *floor* from the same run: two bare HTTP hops with the same bodies, and two writes of 4 KiB
//! synchronised to the same disk. A daemon that accepts messages durably and calls a model cannot be faster. A missed
//! mark is reported and is no failure; a wrong answer is a failure.
//!
//! Reading order: `scenarios`, `starting`, `serving` and `work` (the measurements), `daemon` (the child process and its figures
//! from the operating system), `model` and `slow` (the scripted servers), `floor`, `http` (a minimal client),
//! `figures` (medians, marks, table, JSON).

mod daemon;
mod figures;
mod floor;
mod http;
mod model;
mod scenarios;
mod serving;
mod slow;
mod starting;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const USAGE: &str = "\
usage: belay-bench [--belay FILE] [--data DIR] [--set KEY=VALUE]... [--only PART] [--quick] [--json]

  --belay FILE   the daemon to measure (target/release/belay)
  --data DIR     where its data directories are made, on the disk that shall count (build/bench)
  --set K=V      one more setting for the daemon
  --only PART    start, messages, serving, routines or jobs
  --quick        fewer messages and repetitions: a look, not a measurement
  --json         one JSON object instead of the table";

/// The options of the command line.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) belay: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) settings: Vec<String>,
    /// Variables for the daemon's environment.
    pub(crate) environment: Vec<(&'static str, &'static str)>,
    pub(crate) only: Option<String>,
    pub(crate) quick: bool,
    pub(crate) json: bool,
}

impl Options {
    /// Returns a copy with additional settings.
    pub(crate) fn with(&self, settings: &[&str]) -> Self {
        let mut options = self.clone();
        options.settings.extend(settings.iter().map(|setting| (*setting).to_owned()));
        options
    }

    /// Returns whether this part is to be measured.
    pub(crate) fn wants(&self, part: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == part)
    }
}

fn options() -> Result<Option<Options>> {
    let mut options = Options {
        belay: "target/release/belay".into(),
        data: "build/bench".into(),
        settings: Vec::new(),
        environment: Vec::new(),
        only: None,
        quick: false,
        json: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value\n{USAGE}"));
        match argument.as_str() {
            "--belay" => options.belay = value()?.into(),
            "--data" => options.data = value()?.into(),
            "--set" => options.settings.push(value()?),
            "--only" => options.only = Some(value()?),
            "--quick" => options.quick = true,
            "--json" => options.json = true,
            "-h" | "--help" => return Ok(None),
            _ => bail!("unknown argument {argument}\n{USAGE}"),
        }
    }
    Ok(Some(options))
}

fn measure() -> Result<()> {
    let Some(options) = options()? else {
        figures::print(USAGE);
        return Ok(());
    };
    std::fs::create_dir_all(&options.data).with_context(|| format!("cannot make {}", options.data.display()))?;
    // One thread for the load and one for the model. The daemon has the other cores; on two cores it shares them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(scenarios::all(&options))?;
    figures::print(&if options.json { report.json() } else { report.table() });
    Ok(())
}

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("belay-bench: {why:#}");
            ExitCode::FAILURE
        }
    }
}
