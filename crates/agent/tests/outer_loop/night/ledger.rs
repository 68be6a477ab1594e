//! What the night has come to, as a table.

use std::collections::BTreeMap;
use std::fmt;

use belay_protocol::{JobState, RoutineRunRecord, RoutineRunStatus};

use super::Crashes;
use super::cast::JobKind;

/// What became of routines of one kind.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) routines: u64,
    pub(super) expected: usize,
    /// Routine runs, by how they ended.
    pub(super) by_status: BTreeMap<&'static str, u64>,
    /// Of the missed ones those that a guardrail has held back.
    pub(super) held: u64,
    /// Scheduled times that were claimed or recorded, by how late in milliseconds.
    pub(super) lateness_ms: Vec<i64>,
}

impl Line {
    /// Routine runs with this status.
    pub(super) fn count_of(&self, status: &str) -> u64 {
        self.by_status.get(status).copied().unwrap_or(0)
    }

    pub(super) fn count(&mut self, routine_run: &RoutineRunRecord, held: bool) {
        *self.by_status.entry(routine_run.status.word()).or_default() += 1;
        self.held += u64::from(held);
        if let Some(time) = routine_run.scheduled_at.filter(|_| routine_run.status != RoutineRunStatus::Missed) {
            self.lateness_ms.push(routine_run.claimed_at.0 - time.0);
        }
    }
}

/// The ledger.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) seed: u64,
    pub(super) crashes: Crashes,
    pub(super) kinds: BTreeMap<&'static str, Line>,
    /// How jobs ended, by what happened with them; those of routines have none.
    pub(super) jobs: BTreeMap<(Option<JobKind>, &'static str), u64>,
    pub(super) attempts: u64,
    /// Why jobs and routine runs have failed.
    pub(super) whys: BTreeMap<String, u64>,
    pub(super) calls: u64,
    pub(super) errors: BTreeMap<&'static str, u64>,
    pub(super) notices: usize,
    pub(super) ambiguous: usize,
    pub(super) refused: u64,
    pub(super) effects: usize,
    pub(super) confirmed: usize,
    /// Answers from outside that set nothing off, since a guardrail held it back.
    pub(super) turned_away: u64,
    /// What the ledger of the store, the provider, and the runs say, in millionths of a US dollar.
    pub(super) spent: [u64; 3],
}

impl Ledger {
    pub(super) fn job(&mut self, kind: Option<JobKind>, state: JobState, attempt: u32) {
        *self.jobs.entry((kind, state.word())).or_default() += 1;
        self.attempts += u64::from(attempt);
    }
}

/// The value below which that share of them lies, in seconds.
fn quantile(sorted: &[i64], share: usize) -> f64 {
    let at = (sorted.len() * share / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0.0, |ms| *ms as f64 / 1000.0)
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let crashes: u64 = self.crashes.values().sum();
        writeln!(f, "\nThe night of seed {}: {crashes} crashes at {:?}\n", self.seed, self.crashes)?;
        writeln!(
            f,
            "{:22} {:>8} {:>8} {:>6} {:>9} {:>6} {:>6} {:>6} {:>9} {:>9}",
            "routines", "number", "expected", "ok", "attention", "failed", "missed", "(held)", "late p50", "late p99"
        )?;
        for (kind, line) in &self.kinds {
            let count = |status: &str| line.count_of(status);
            let mut late = line.lateness_ms.clone();
            late.sort_unstable();
            writeln!(
                f,
                "{kind:22} {:>8} {:>8} {:>6} {:>9} {:>6} {:>6} {:>6} {:>7.1} s {:>7.1} s",
                line.routines,
                line.expected,
                count("ok"),
                count("attention"),
                count("failed"),
                count("missed"),
                line.held,
                quantile(&late, 50),
                quantile(&late, 99),
            )?;
        }
        writeln!(f, "\njobs ({} attempts)", self.attempts)?;
        for ((kind, state), count) in &self.jobs {
            let kind = kind.map_or("of routines".to_owned(), |kind| format!("{kind:?}"));
            writeln!(f, "{kind:22} {count:>8} {state}")?;
        }
        writeln!(f, "\nfailed, since")?;
        for (why, count) in &self.whys {
            writeln!(f, "{count:>8} {why}")?;
        }
        let errors: u64 = self.errors.values().sum();
        writeln!(f, "\nmodel       {} calls answered, {errors} went wrong: {:?}", self.calls, self.errors)?;
        writeln!(f, "effects     {} had once, {} of them confirmed to the model", self.effects, self.confirmed)?;
        writeln!(
            f,
            "told        {} notices, each committed once; {} of all messages ambiguous, {} deliveries tried again",
            self.notices, self.ambiguous, self.refused
        )?;
        writeln!(f, "turned away {} messages, events and calls, by a guardrail", self.turned_away)?;
        let [ledger, bill, runs] = self.spent.map(|micro_usd| micro_usd as f64 / 1e6);
        write!(f, "money       {ledger:.4} US dollars booked, {bill:.4} charged, {runs:.4} in the runs' accounts")
    }
}
