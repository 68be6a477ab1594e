//! Consecutive failures of one subject. Pure.

use std::collections::{HashSet, VecDeque};

use belay_protocol::tool_health::MOST_FAILURES;
use belay_protocol::{RunId, ToolFault, UnixMillis};
use tokio::time::Instant;

use super::rules::Bar;

/// Maximum number of failures with time and run. 128: more than any rule needs. Older ones are only counted.
const KEPT: usize = MOST_FAILURES as usize + 28;

/// Number of failures kept as evidence. 5: enough to see whether they are all alike.
const EVIDENCE: usize = 5;

/// Consecutive failures.
#[derive(Clone, Debug)]
pub(super) struct Streak {
    seen: VecDeque<(Instant, RunId)>,
    last: VecDeque<ToolFault>,
    /// Total number.
    pub(super) failures: u32,
    /// Date of the first one.
    pub(super) since: UnixMillis,
    /// Time of the last report.
    pub(super) reported: Option<Instant>,
}

impl Streak {
    /// An empty streak.
    pub(super) fn new(since: UnixMillis) -> Self {
        Self { seen: VecDeque::new(), last: VecDeque::new(), failures: 0, since, reported: None }
    }

    /// Adds a failure.
    pub(super) fn add(&mut self, fault: ToolFault, now: Instant) {
        if self.seen.len() == KEPT {
            self.seen.pop_front();
        }
        if self.last.len() == EVIDENCE {
            self.last.pop_front();
        }
        self.seen.push_back((now, fault.run_id));
        self.last.push_back(fault);
        self.failures = self.failures.saturating_add(1);
    }

    /// Whether the failures reach a threshold.
    pub(super) fn is_over(&self, bar: Bar, now: Instant) -> bool {
        let counts = |at: Instant| bar.within.is_none_or(|within| now.saturating_duration_since(at) <= within);
        let within = self.seen.iter().filter(|(at, _)| counts(*at));
        let runs: HashSet<RunId> = within.clone().map(|(_, run)| *run).collect();
        within.count() >= bar.failures as usize && runs.len() >= bar.runs as usize
    }

    /// Number of different runs among the kept failures.
    pub(super) fn runs(&self) -> u32 {
        let runs: HashSet<&RunId> = self.seen.iter().map(|(_, run)| run).collect();
        u32::try_from(runs.len()).unwrap_or(u32::MAX)
    }

    /// Number of kept failures of this run.
    pub(super) fn of_run(&self, run: RunId) -> usize {
        self.seen.iter().filter(|(_, of)| *of == run).count()
    }

    /// Time of the newest failure.
    pub(super) fn newest(&self) -> Option<Instant> {
        self.seen.back().map(|(at, _)| *at)
    }

    /// The newest failures, oldest first.
    pub(super) fn evidence(&self) -> &VecDeque<ToolFault> {
        &self.last
    }
}
