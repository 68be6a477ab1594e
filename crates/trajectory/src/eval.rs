//! Evaluates rule sets on a labelled set of recordings: how well they distinguish pathological runs, which loop or make
//! no progress, from healthy ones.
//!
//! - **recall**: the share of the pathological runs that are stopped at their onset or after it;
//! - **false stops**: the share of the healthy runs that are stopped;
//! - **early**: the share of the pathological runs that are stopped before their onset, which is as wrong;
//! - **wasted calls**: the calls between the onset and the stop. They are tool calls, or model calls if no tools are
//!   called any more. A run that is not stopped wastes the whole rest of its recording.
//!
//! The first verdict counts, even if it only grants a recovery turn. Each figure is measured on the original
//! recordings, and on changed copies if the caller makes some.

mod labels;
mod report;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::event::TrajectoryEvent;
use crate::rule_set::{Candidate, RuleSet};

pub use labels::{Label, LabelError, Labelled, Row, label_of_directory, labelled, rows};
pub use report::{Failure, FailureKind, Report, Score, SetReport};

/// A labelled recording of the set.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name in reports.
    pub name: String,
    /// Its label.
    pub label: Labelled,
    /// Its events.
    pub events: Vec<TrajectoryEvent>,
}

/// A recording as the rule sets see it: a case, or a changed copy of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The events.
    pub events: Vec<TrajectoryEvent>,
    /// The index of the first event that is part of the pathology. `None` for a healthy run, and for a label without an
    /// onset.
    pub onset: Option<usize>,
    /// Whether the label says that the run is pathological.
    pub stuck: bool,
    /// The program restarts before the events with these indices, in ascending order.
    pub restarts: Vec<usize>,
    /// The names of the changes to the copy.
    pub changes: Vec<&'static str>,
}

impl Run {
    /// The unchanged recording.
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

/// Makes changed copies of the recordings, which are judged in addition to the originals.
pub trait Copies: Sync {
    /// The number of copies of each recording.
    fn count(&self) -> usize;

    /// Makes the copy with this number, from 1. `None`: this recording cannot be changed.
    fn copy(&self, case: &Case, number: usize) -> Option<Run>;
}

/// Makes no copies.
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

/// Evaluates each candidate on the set, with as many threads as the machine has processors, at most 8.
///
/// `progress` gets the number of finished runs and the number of all runs.
pub fn evaluate(
    cases: &[Case],
    candidates: &[Candidate],
    copies: &impl Copies,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Report {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    evaluate_on(threads, cases, candidates, copies, progress)
}

/// Most threads for the work. 8: a set is small, and other programs run on larger machines too.
const THREADS_MAX: usize = 8;

fn evaluate_on(
    threads: usize,
    cases: &[Case],
    candidates: &[Candidate],
    copies: &impl Copies,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Report {
    // Copy 0 is the unchanged recording.
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
    // Threads finish in any order. The report must not depend on that order.
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
    /// The event at which the rule set stopped the run, and the rule.
    stop: Option<(usize, String)>,
    /// Calls between the onset and the stop; `None`: there is no onset, or it is after the stop.
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
