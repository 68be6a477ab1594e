//! Judging a labelled set: how well rule sets tell runs that go in circles from runs that work.
//!
//! - **recall**: of the runs that go in circles, those that are stopped, and not before their onset;
//! - **false stops**: of the healthy runs, those that are stopped;
//! - **early**: of the runs that go in circles, those that are stopped before their onset, which is as wrong;
//! - **wasted calls**: what was spent between the onset and the stop: tool calls, or model calls where no tools are called
//!   any more. A run that is not stopped wastes all that remains of its recording.
//!
//! The first verdict counts, also where it only grants a recovery turn. Each figure is measured on the set as it stands,
//! and on changed copies of it where the caller makes some.

mod labels;
mod report;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::event::TrajectoryEvent;
use crate::rule_set::{Candidate, RuleSet};

pub use labels::{Label, LabelError, Labelled, Row, label_of_directory, labelled, rows};
pub use report::{Failure, FailureKind, Report, Score, SetReport};

/// A recording of the set.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name in reports.
    pub name: String,
    /// What it is.
    pub label: Labelled,
    /// Its events.
    pub events: Vec<TrajectoryEvent>,
}

/// A recording as the rule sets see it: a case as it stands, or a changed copy of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The events.
    pub events: Vec<TrajectoryEvent>,
    /// The index of the first event that is part of the pathology. `None` for a healthy run, and where the label has none.
    pub onset: Option<usize>,
    /// The label says that the run is a pathology.
    pub stuck: bool,
    /// The program restarts before the events of these indices, ascending.
    pub restarts: Vec<usize>,
    /// The names of the changes that were made.
    pub changes: Vec<&'static str>,
}

impl Run {
    /// The recording as it stands.
    pub fn of(case: &Case) -> Self {
        Self {
            events: case.events.clone(),
            onset: case.label.onset,
            stuck: case.label.label == Label::Pathology,
            restarts: Vec::new(),
            changes: Vec::new(),
        }
    }
}

/// Makes changed copies of the recordings, which are judged beside the originals.
pub trait Copies: Sync {
    /// Copies of each recording.
    fn count(&self) -> usize;

    /// The copy of that number, from 1. `None`: this recording cannot be changed.
    fn copy(&self, case: &Case, number: usize) -> Option<Run>;
}

/// No copies.
#[derive(Clone, Copy, Debug)]
pub struct NoCopies;

impl Copies for NoCopies {
    fn count(&self) -> usize {
        0
    }

    fn copy(&self, _: &Case, _: usize) -> Option<Run> {
        None
    }
}

/// Judges the set by each candidate, on as many threads as the machine has, up to 8.
///
/// `progress` receives how many runs of how many are done.
pub fn evaluate(
    cases: &[Case],
    candidates: &[Candidate],
    copies: &impl Copies,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Report {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    evaluate_on(threads, cases, candidates, copies, progress)
}

/// Most threads that share the work. 8: a set is small; on larger machines other programs run too.
const THREADS_MAX: usize = 8;

fn evaluate_on(
    threads: usize,
    cases: &[Case],
    candidates: &[Candidate],
    copies: &impl Copies,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Report {
    // Copy 0 is the recording as it stands.
    let jobs: Vec<(usize, usize)> =
        (0..cases.len()).flat_map(|case| (0..=copies.count()).map(move |copy| (case, copy))).collect();
    let (next, done, outcomes) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(&(case, copy)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let run = match copy {
                        0 => Some(Run::of(&cases[case])),
                        copy => copies.copy(&cases[case], copy),
                    };
                    let judged = run.map(|run| judge(case, copy, &run, candidates)).unwrap_or_default();
                    outcomes.lock().unwrap_or_else(PoisonError::into_inner).extend(judged);
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1, jobs.len());
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Threads end in any order; the report does not depend on it.
    outcomes.sort_by_key(|outcome: &Outcome| (outcome.set, outcome.case, outcome.copy));
    Report::of(cases, candidates, copies.count() > 0, &outcomes)
}

/// The result of one rule set on one run.
#[derive(Clone, Debug)]
struct Outcome {
    set: usize,
    case: usize,
    copy: usize,
    changes: Vec<&'static str>,
    onset: Option<usize>,
    /// At which event it stopped, and by which rule.
    stop: Option<(usize, String)>,
    /// Calls between the onset and the stop; `None`: there is no onset, or it lies behind the stop.
    wasted: Option<u64>,
}

fn judge(case: usize, copy: usize, run: &Run, candidates: &[Candidate]) -> Vec<Outcome> {
    let outcome = |(set, candidate): (usize, &Candidate)| {
        let stop = first_stop(&mut *(candidate.make)(), run);
        let wasted = wasted(run, stop.as_ref().map(|(at, _)| *at));
        Outcome { set, case, copy, changes: run.changes.clone(), onset: run.onset, stop, wasted }
    };
    candidates.iter().enumerate().map(outcome).collect()
}

fn first_stop(set: &mut dyn RuleSet, run: &Run) -> Option<(usize, String)> {
    let mut restarts = run.restarts.iter().peekable();
    run.events.iter().enumerate().find_map(|(at, event)| {
        if restarts.next_if(|place| **place == at).is_some() {
            set.restart();
        }
        Some((at, set.observe(event)?))
    })
}

fn wasted(run: &Run, stop: Option<usize>) -> Option<u64> {
    let onset = run.onset?;
    let rest = run.events.get(onset + 1..)?;
    let spent = match stop {
        Some(stop) => rest.get(..stop.checked_sub(onset)?)?,
        None => rest,
    };
    let calls = |events: &[TrajectoryEvent]| {
        events.iter().filter(|event| matches!(event, TrajectoryEvent::Tool { .. })).count()
    };
    let turns = |events: &[TrajectoryEvent]| events.iter().filter(|event| **event == TrajectoryEvent::Turn).count();
    Some(if calls(rest) > 0 { calls(spent) } else { turns(spent) } as u64)
}

#[cfg(test)]
mod tests;
