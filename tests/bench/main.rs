//! `belay-bench`: measures what the daemon adds to a message, with a model that answers at once.
//!
//! Everything runs on this machine at the same time: a scripted model server and the load generator in this process,
//! each on a thread of its own, and the daemon as a child process with an empty data directory. Each figure is
//! compared with a *floor* from the same run: two bare HTTP hops with the same bodies, and two writes of 4 KiB
//! synchronised to the same disk. A daemon that accepts messages durably and calls a model cannot be faster. A missed
//! mark is reported and is no failure; a wrong answer is a failure.
//!
//! Reading order: `scenarios`, `serving`, `stops` and `work` (the measurements), `daemon` (the child process and its
//! figures from the operating system), `model` and `slow` (the scripted servers), `floor`, `http` (a minimal client),
//! `figures` (medians, marks, table, JSON), `conditions` (machine and build), `history` (saved results and the
//! comparison with them).

mod conditions;
mod daemon;
mod figures;
mod floor;
mod history;
mod http;
mod model;
mod scenarios;
mod serving;
mod slow;
mod stops;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};

use crate::history::History;

const USAGE: &str = "\
usage: belay-bench [--belay FILE] [--data DIR] [--set KEY=VALUE]... [--only PART] [--quick] [--json]
                   [--save NAME] [--against NAME] [--results DIR]

  --belay FILE   the daemon to measure (target/release/belay)
  --data DIR     where its data directories are made, on the disk that shall count (build/bench)
  --set K=V      one more setting for the daemon
  --only PART    messages, serving, stops, routines or jobs
  --quick        fewer messages and repetitions: a look, not a measurement
  --json         one JSON object instead of the table
  --save NAME    keep the result as NAME.json, for later comparisons
  --against NAME compare with this result, not with the one measured last
  --results DIR  where results are kept (docs/develop/bench)";

/// The parts that `--only` selects.
const PARTS: [&str; 5] = ["messages", "serving", "stops", "routines", "jobs"];

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
    /// The name of the result to save.
    pub(crate) save: Option<String>,
    /// The name of the result to compare with.
    pub(crate) against: Option<String>,
    pub(crate) results: History,
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
        save: None,
        against: None,
        results: History("docs/develop/bench".into()),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value\n{USAGE}"));
        match argument.as_str() {
            "--belay" => options.belay = value()?.into(),
            "--data" => options.data = value()?.into(),
            "--set" => options.settings.push(value()?),
            "--only" => options.only = Some(part(value()?)?),
            "--save" => options.save = Some(value()?),
            "--against" => options.against = Some(value()?),
            "--results" => options.results = History(value()?.into()),
            "--quick" => options.quick = true,
            "--json" => options.json = true,
            "-h" | "--help" => return Ok(None),
            _ => bail!("unknown argument {argument}\n{USAGE}"),
        }
    }
    Ok(Some(options))
}

fn part(name: String) -> Result<String> {
    ensure!(PARTS.contains(&name.as_str()), "there is no part {name}; there are {}", PARTS.join(", "));
    Ok(name)
}

fn measure() -> Result<()> {
    let Some(options) = options()? else {
        figures::print(USAGE);
        return Ok(());
    };
    // A wrong name or a damaged file is reported before a measurement of many minutes.
    let file = options.save.as_deref().map(|name| options.results.new_file(name)).transpose()?;
    let saved = options.results.find(options.against.as_deref())?;
    std::fs::create_dir_all(&options.data).with_context(|| format!("cannot make {}", options.data.display()))?;
    // One thread for the load and one for the model. The daemon has the other cores; on two cores it shares them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut report = runtime.block_on(scenarios::all(&options))?;
    // The figures are printed although they cannot be saved.
    let written = file.as_deref().map_or(Ok(()), |file| history::save(file, &report));
    match saved {
        Some(saved) => history::compare(&mut report, saved, options.only.is_some()),
        None => report.notes.push("No earlier result to compare with; make bench SAVE=NAME saves one.".to_owned()),
    }
    figures::print(&if options.json { report.json() } else { report.table() });
    written
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
