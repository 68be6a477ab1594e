//! `belay stops …`: applies the stop rules to recorded runs.
//!
//! **For**: [`check()`] judges recordings and sessions of other agents, [`import()`] converts them, and [`eval()`] judges a labelled set.
//!
//! **Does not know**: how a rule decides: `agent-loop` and `trajectory` have that. It changes no run and no store.
//!
//! Reading order: `files` → `rules` → `check` → `said` → `set` → `eval` → `import`.

mod check;
mod eval;
mod files;
mod import;
mod rules;
mod said;
mod set;

use std::path::PathBuf;

use belay_settings::SettingsArgs;
use belay_trajectory::import::Format;
use belay_trajectory::rule_set::Part;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};

pub use check::check;
pub use eval::eval;
pub use import::import;
pub use rules::of_text as rules_of_text;

/// `belay stops …`
#[derive(Debug, Subcommand)]
pub enum StopsCommand {
    /// Judge recorded runs, also sessions of other agents, by the stop rules, and explain the verdict
    Check(CheckArgs),
    /// Convert the recording of another program
    Import(ImportArgs),
    /// Judge a labelled set of recordings: recall, false stops and wasted calls
    Eval(EvalArgs),
}

/// `belay stops check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The settings, for --with-limits.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Apply the limits of the settings too
    #[arg(long)]
    pub with_limits: bool,
    /// Use these rules instead: a TOML file with the content of the section stops
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// Judge a run of the running daemon
    #[arg(long, value_name = "ID", conflicts_with = "sessions")]
    pub run: Option<String>,
    /// The address of the daemon, for --run
    #[arg(long, env = "BELAY_URL", value_name = "URL")]
    pub url: Option<String>,
    /// Read the files in this format, without detecting it
    #[arg(long, value_parser = formats())]
    pub format: Option<String>,
    /// Print one line of JSON for each run, with the explanation in it
    #[arg(long)]
    pub json: bool,
    /// Recordings, or sessions of other programs; `-` reads standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub sessions: Vec<PathBuf>,
}

/// `belay stops import`
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Read the file in this format, without detecting it
    #[arg(long, value_parser = formats())]
    pub format: Option<String>,
    /// The conversation of the file to import, counted from 0
    #[arg(long, value_name = "N")]
    pub index: Option<usize>,
    /// Write to this file, or all conversations into this directory
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// What to import; `-` reads standard input
    pub file: PathBuf,
}

/// `belay stops eval`
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print a table for a document
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    /// List each run that a rule set is wrong about: belay, `without PART`, or `all`
    #[arg(long, value_name = "RULE SET", num_args = 0..=1, default_missing_value = "belay", require_equals = true)]
    pub failures: Option<String>,
    /// Use these rules instead: a TOML file with the content of the section stops
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// Judge belay also without a part of its loop analysis, or without each part in turn (`all`)
    #[arg(long, value_name = "PART", value_parser = parts())]
    pub without: Vec<String>,
    /// The directory of the set: recordings or sessions (*.jsonl, *.json, *.traj), and labels.jsonl beside them
    pub dir: PathBuf,
}

/// The word for every part.
const ALL_PARTS: &str = "all";

fn parts() -> PossibleValuesParser {
    PossibleValuesParser::new(Part::ALL.iter().map(|part| part.word()).chain([ALL_PARTS]))
}

fn formats() -> PossibleValuesParser {
    PossibleValuesParser::new(Format::ALL.iter().map(|format| format.word()))
}
