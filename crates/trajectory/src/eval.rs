//! Judging a labelled set: how well rule sets tell runs that go in circles from runs that work.
//!
//! - **recall**: of the runs that go in circles, those that are stopped, and not before their onset;
//! - **false stops**: of the healthy runs, those that are stopped;
//! - **early**: of the runs that go in circles, those that are stopped before their onset, which is as wrong;
//! - **wasted calls**: what was spent between the onset and the stop: tool calls, or model calls where no tools are called
//!   any more. A run that is not stopped wastes all that remains of its recording.
//!
//! The first verdict counts, also where it only grants a recovery turn. Each is measured on the set as it stands, and on
//! mutated copies of it.

mod labels;
mod report;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::event::TrajectoryEvent;
use crate::mutate::{Mutation, Random, Run};
use crate::rule_sets::{Candidate, RuleSet};

pub use labels::{Label, LabelError, Labelled, Row, label_of_directory, labelled, rows};
pub use report::{Failure, FailureKind, Report, Score, SetReport};

/// A recording of the set.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name in reports.
    pub name: String,
    /// What it is.
    pub label: Labelled,
    /// What happened.
    pub events: Vec<TrajectoryEvent>,
}

/// How a set is judged.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Mutated copies of each recording. `None`: so many that there are at least [`HEALTHY_COPIES`] healthy ones.
    pub copies: Option<usize>,
    /// What the mutations are drawn from.
    pub seed: u64,
    /// Threads that share the work; at least 1.
    pub threads: usize,
}

/// Healthy copies that are made unless told otherwise. 1000: the promise is fewer than one false stop in a thousand runs.
pub const HEALTHY_COPIES: usize = 1000;

/// Judges the set by each candidate. `progress` hears how many runs of how many are done.
pub fn evaluate(
    cases: &[Case],
    candidates: &[Candidate],
    options: Options,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Report {
    let healthy = cases.iter().filter(|case| case.label.label == Label::Healthy).count();
    let copies = options.copies.unwrap_or_else(|| HEALTHY_COPIES.div_ceil(healthy.max(1)));
    // Copy 0 is the recording as it stands.
    let jobs: Vec<(usize, usize)> =
        (0..cases.len()).flat_map(|case| (0..=copies).map(move |copy| (case, copy))).collect();
    let (next, done, outcomes) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                while let Some((case, copy)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let judged = judge(*case, &cases[*case], *copy, options.seed, candidates);
                    outcomes.lock().unwrap_or_else(PoisonError::into_inner).extend(judged);
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1, jobs.len());
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Threads end in any order; the report does not depend on it.
    outcomes.sort_by_key(|outcome: &Outcome| (outcome.set, outcome.case, outcome.copy));
    Report::of(cases, candidates, copies, options.seed, &outcomes)
}

/// What one rule set made of one run.
#[derive(Clone, Debug)]
struct Outcome {
    set: usize,
    case: usize,
    copy: usize,
    mutations: Vec<Mutation>,
    onset: Option<usize>,
    /// At which event it stopped, and by which rule.
    stop: Option<(usize, String)>,
    /// Calls between the onset and the stop; `None`: there is no onset, or it lies behind the stop.
    wasted: Option<u64>,
}

fn judge(index: usize, case: &Case, copy: usize, seed: u64, candidates: &[Candidate]) -> Vec<Outcome> {
    let stuck = case.label.label == Label::Pathology;
    let run = Run { events: case.events.clone(), onset: case.label.onset, stuck, restarts: Vec::new() };
    let mutations = plan(&run, case, copy, seed);
    if copy > 0 && mutations.is_empty() {
        return Vec::new(); // nothing can be changed about it
    }
    let mut random = Random::new(seed, &format!("{}#{copy}", case.name));
    let run = mutations.iter().fold(run, |run, mutation| mutation.apply(&run, &mut random));
    let outcome = |(set, candidate): (usize, &Candidate)| {
        let stop = first_stop(&mut *(candidate.make)(), &run);
        let wasted = wasted(&run, stop.as_ref().map(|(at, _)| *at));
        Outcome { set, case: index, copy, mutations: mutations.clone(), onset: run.onset, stop, wasted }
    };
    candidates.iter().enumerate().map(outcome).collect()
}

/// Which mutations make a copy: first each one alone, beginning anywhere, so that few copies of many recordings show all
/// kinds; then two or three together.
fn plan(run: &Run, case: &Case, copy: usize, seed: u64) -> Vec<Mutation> {
    let Some(nth) = copy.checked_sub(1) else { return Vec::new() };
    let allowed = |mutation: &Mutation| case.label.mutations.as_ref().is_none_or(|only| only.contains(mutation));
    let mut fitting: Vec<_> = Mutation::ALL.iter().copied().filter(|it| allowed(it) && it.applies(run)).collect();
    let first = Random::new(seed, &case.name).below(fitting.len() as u64) as usize;
    if nth < fitting.len() {
        return vec![fitting[(first + nth) % fitting.len()]];
    }
    let mut random = Random::new(seed, &format!("{}+{copy}", case.name));
    random.shuffle(&mut fitting);
    fitting.truncate(2 + random.below(2) as usize);
    fitting.sort_unstable();
    fitting
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
