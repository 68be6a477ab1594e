//! Failures in a row of one subject. Pure.

use std::collections::{HashSet, VecDeque};

use belay_protocol::tool_health::MOST_FAILURES;
use belay_protocol::{RunId, ToolFault, UnixMillis};
use tokio::time::Instant;

use super::rules::Bar;

/// Failures whose time and run are kept. 128: more than any rule asks for; of older ones there is only the number.
const KEPT: usize = MOST_FAILURES as usize + 28;

/// Failures that are kept as evidence. 5: enough to see whether they are all the same.
const EVIDENCE: usize = 5;

/// Failures in a row.
#[derive(Clone, Debug)]
pub(super) struct Streak {
    seen: VecDeque<(Instant, RunId)>,
    last: VecDeque<ToolFault>,
    /// How many in all.
    pub(super) failures: u32,
    /// When the first one was.
    pub(super) since: UnixMillis,
    /// When it was last told of.
    pub(super) reported: Option<Instant>,
}

impl Streak {
    /// None yet.
    pub(super) fn new(since: UnixMillis) -> Self {
        Self { seen: VecDeque::new(), last: VecDeque::new(), failures: 0, since, reported: None }
    }

    /// One more.
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

    /// Whether there are too many.
    pub(super) fn is_over(&self, bar: Bar, now: Instant) -> bool {
        let counts = |at: Instant| bar.within.is_none_or(|within| now.saturating_duration_since(at) <= within);
        let within = self.seen.iter().filter(|(at, _)| counts(*at));
        let runs: HashSet<RunId> = within.clone().map(|(_, run)| *run).collect();
        within.count() >= bar.failures as usize && runs.len() >= bar.runs as usize
    }

    /// Of how many different runs they are, as far as that is kept.
    pub(super) fn runs(&self) -> u32 {
        let runs: HashSet<&RunId> = self.seen.iter().map(|(_, run)| run).collect();
        u32::try_from(runs.len()).unwrap_or(u32::MAX)
    }

    /// How many of them are of that run, as far as that is kept.
    pub(super) fn of_run(&self, run: RunId) -> usize {
        self.seen.iter().filter(|(_, of)| *of == run).count()
    }

    /// When the newest was.
    pub(super) fn newest(&self) -> Option<Instant> {
        self.seen.back().map(|(at, _)| *at)
    }

    /// The newest ones, oldest first.
    pub(super) fn evidence(&self) -> &VecDeque<ToolFault> {
        &self.last
    }
}
