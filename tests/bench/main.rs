//! `belay-bench`: measures what the daemon adds to a message, with a model that answers at once.
//!
//! Everything runs on this machine at the same time: a scripted model server and the load generator in this process,
//! each on a thread of its own, and the daemon as a child process with an empty data directory. Each figure is
//! compared with a *floor* from the same run: two bare HTTP hops with the same bodies, and two writes of 4 KiB
//! synchronised to the same disk. A daemon that accepts messages durably and calls a model cannot be faster. A missed
//! mark is reported and is no failure; a wrong answer is a failure.
//!
//! Reading order: `scenarios`, `starting`, `serving`, `stops`, `attachments`, `terminal` and `work` (the measurements), `soak` and `growth` (a long load, and
//! the rule by which it fails), `daemon` (the child process and its figures from the operating system), `model` and
//! `slow` (the scripted servers), `floor`, `http` (a minimal client), `figures` (medians, marks, table, JSON),
//! `conditions` (machine and build), `history` (saved results and the comparison with them).

mod attachments;
mod conditions;
mod figures;
mod floor;
mod growth;
mod history;
mod scenarios;
mod serving;
mod slow;
mod soak;
mod starting;
mod stops;
mod terminal;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use belay_tests::measure::daemon::Setup;
use belay_tests::measure::{daemon, http, model};

use crate::history::History;

const USAGE: &str = "\
usage: belay-bench [--belay FILE] [--data DIR] [--set KEY=VALUE]... [--only PART] [--quick] [--json]
                   [--save NAME] [--against NAME] [--results DIR]
       belay-bench --only soak --minutes N [--belay FILE] [--data DIR] [--set KEY=VALUE]... [--json]

  --belay FILE   the daemon to measure (target/release/belay)
  --data DIR     where its data directories are made, on the disk that shall count (build/bench)
  --set K=V      one more setting for the daemon
  --only PART    start, messages, serving, stops, attachments, terminal,
                 routines or jobs
  --quick        fewer messages and repetitions: a look, not a measurement
  --json         one JSON object instead of the table
  --save NAME    keep the result as NAME.json, for later comparisons
  --against NAME compare with this result, not with the one measured last
  --results DIR  where results are kept (docs/develop/bench)
  --only soak    a daemon under steady load: its memory, descriptors and files over time; ends with 1 when they grow
  --minutes N    how long, 0.5 to 10080 (a week)";

/// The parts that `--only` selects.
const PARTS: [&str; 9] = ["start", "messages", "serving", "stops", "attachments", "terminal", "routines", "jobs", SOAK];
/// The part that is only measured when it is selected.
const SOAK: &str = "soak";

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
    /// The duration of the soak.
    pub(crate) minutes: Option<f64>,
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

impl From<&Options> for Setup {
    fn from(options: &Options) -> Self {
        Self {
            program: options.belay.clone(),
            leading: Vec::new(),
            data: options.data.clone(),
            settings: options.settings.clone(),
            environment: options.environment.clone(),
        }
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
        minutes: None,
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
            "--minutes" => options.minutes = Some(minutes(&value()?)?),
            "--save" => options.save = Some(value()?),
            "--against" => options.against = Some(value()?),
            "--results" => options.results = History(value()?.into()),
            "--quick" => options.quick = true,
            "--json" => options.json = true,
            "-h" | "--help" => return Ok(None),
            _ => bail!("unknown argument {argument}\n{USAGE}"),
        }
    }
    let soak = options.only.as_deref() == Some(SOAK);
    ensure!(soak == options.minutes.is_some(), "--only soak and --minutes belong together\n{USAGE}");
    ensure!(!soak || (options.save.is_none() && options.against.is_none()), "a soak is neither saved nor compared");
    Ok(Some(options))
}

fn part(name: String) -> Result<String> {
    ensure!(PARTS.contains(&name.as_str()), "there is no part {name}; there are {}", PARTS.join(", "));
    Ok(name)
}

fn minutes(text: &str) -> Result<f64> {
    let minutes = text.parse().ok().filter(|minutes| (0.5..=10_080.0).contains(minutes));
    minutes.with_context(|| format!("--minutes {text}: write a number from 0.5 to 10080"))
}

fn measure() -> Result<()> {
    let Some(options) = options()? else {
        figures::print(USAGE);
        return Ok(());
    };
    // A wrong name or a damaged file is reported before a measurement of many minutes.
    let file = options.save.as_deref().map(|name| options.results.new_file(name)).transpose()?;
    let saved = if options.minutes.is_none() { options.results.find(options.against.as_deref())? } else { None };
    std::fs::create_dir_all(&options.data).with_context(|| format!("cannot make {}", options.data.display()))?;
    // One thread for the load and one for the model. The daemon has the other cores; on two cores it shares them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if let Some(minutes) = options.minutes {
        return runtime.block_on(soak::run(&options, minutes));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_of_minutes_within_a_week() {
        for (text, expected) in [
            ("0.5", Some(0.5)),
            ("30", Some(30.0)),
            ("10080", Some(10_080.0)),
            ("0", None),
            ("-1", None),
            ("NaN", None),
            ("inf", None),
            ("1h", None),
            ("", None),
        ] {
            assert_eq!(minutes(text).ok(), expected, "{text}");
        }
    }
}
