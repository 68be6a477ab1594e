//! `belay-stopbench`: compares the stop rules of Belay with those of other programs.
//!
//! **For**: the published figures of `docs/stopbench.md`. The labelled recordings of `tests/stopbench` and mutated
//! copies of them are judged by Belay and by restated rule sets of other programs, or by Belay without a part of its
//! analysis.
//!
//! **Does not know**: the daemon and its settings. It uses Belay's default rules.
//!
//! Reading order: [`set`] → [`rule_sets`] → [`mutate`].

mod mutate;
mod rule_sets;
mod set;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use belay_agent_loop::policies::StopRules;
use belay_trajectory::eval::{Failure, Report, evaluate};
use belay_trajectory::rule_set::{Part, belay};
use clap::Parser;
use clap::builder::PossibleValuesParser;

use mutate::Mutated;

/// The value of `--without` for every part.
const ALL_PARTS: &str = "all";

/// Judge a labelled set by the rules of Belay and of other programs, and print the table
#[derive(Debug, Parser)]
struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// List each run that Belay judges wrongly
    #[arg(long, conflicts_with = "json")]
    failures: bool,
    /// Number of mutated copies of each recording [default: as many as are needed for 1000 healthy copies]
    #[arg(long, value_name = "N")]
    mutations: Option<usize>,
    /// Seed of the mutations
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Compare with Belay without this part of its loop analysis (`all`: without each part in turn), instead of other
    /// programs
    #[arg(long, value_name = "PART", value_parser = parts())]
    without: Vec<String>,
    /// Directory of the set: recordings, each directory with a file labels.jsonl
    #[arg(default_value = "tests/stopbench")]
    directory: PathBuf,
}

fn parts() -> PossibleValuesParser {
    PossibleValuesParser::new(Part::ALL.iter().map(|part| part.word()).chain([ALL_PARTS]))
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let report = report(&arguments.directory, arguments.mutations, arguments.seed, &arguments.without)?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?);
    }
    write!(out, "{}", report.markdown())?;
    if arguments.failures {
        let failures = report.sets.first().map(|set| set.failures.as_slice()).unwrap_or_default();
        writeln!(out, "\n{} failures", failures.len())?;
        for failure in failures {
            writeln!(out, "{}", line(failure))?;
        }
    }
    Ok(())
}

/// Judges the set in this directory.
///
/// # Errors
/// The set cannot be read, or one of its labels cannot be used.
fn report(directory: &Path, mutations: Option<usize>, seed: u64, without: &[String]) -> Result<Report> {
    let left_out = |part: &Part| without.iter().any(|word| word == part.word() || word == ALL_PARTS);
    let left_out: Vec<Part> = Part::ALL.into_iter().filter(left_out).collect();
    let mut candidates = belay(&StopRules::progress(), &left_out);
    if left_out.is_empty() {
        candidates.extend(rule_sets::other_programs());
    }
    let cases = set::read(directory)?;
    let mutated = Mutated::of(&cases, mutations, seed)?;
    Ok(evaluate(&cases, &candidates, &mutated, &|_, _| {}))
}

fn line(failure: &Failure) -> String {
    let at = |event: Option<usize>| event.map_or("–".to_owned(), |event| event.to_string());
    format!(
        "{}: {} {}: event {}, onset {}, rule {}",
        failure.kind.word(),
        failure.file,
        failure.mutations.join(" + "),
        at(failure.at_event),
        at(failure.onset),
        failure.rule.as_deref().unwrap_or("–"),
    )
}

#[cfg(test)]
mod tests;
