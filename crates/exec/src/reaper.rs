//! The thread that ends trees.
//!
//! One thread ends all trees: one walk over the process table serves every tree. The thread needs no async runtime, so
//! it continues while the daemon panics.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::adopted::Adopted;
use super::registry::{Progress, Registry, Tracked, TreeId};
use super::table::{Process, Table};
use super::termination::{ScanResult, Termination, numbers};

/// Shortest pause between two looks while a tree is being ended. 5 ms: a person does not notice it.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Pause between two looks while no tree is being ended. These looks record processes that have left their parent, and
/// reap zombies.
const SWEEP: Duration = Duration::from_secs(2);

/// Watches trees and ends them.
#[derive(Debug)]
pub(super) struct ProcessReaper {
    pub(super) registry: Arc<Registry>,
    pub(super) grace: Duration,
}

impl ProcessReaper {
    /// Ends trees on request, until the registry is closed and everything that can end has ended.
    pub(super) fn run(&self, mut adopted: Adopted) {
        let mut terminations: HashMap<TreeId, Termination> = HashMap::new();
        loop {
            let tracked_trees = self.registry.tracked_trees();
            terminations.retain(|id, _| tracked_trees.iter().any(|tracked| tracked.id == *id));
            let begin = Instant::now();
            let look = AssertUnwindSafe(|| self.look_at(&tracked_trees, &mut terminations, &mut adopted));
            let urgent = catch_unwind(look).unwrap_or_else(|_| {
                // This last safety net must survive a bug in itself: the state is kept, and the next look follows at
                // the slower pace.
                tracing::error!("looking at processes has panicked");
                false
            });
            if self.registry.is_done() {
                return adopted.end_all();
            }
            let idle = tracked_trees.is_empty() && adopted.is_empty();
            // With very many processes a walk takes long. It must use at most half of one processor.
            let pause = if urgent { LOOK_AGAIN.max(begin.elapsed()) } else { SWEEP };
            self.registry.wait((!idle).then_some(pause));
        }
    }

    /// Looks at every tree once. Returns whether to look again soon.
    fn look_at(
        &self,
        tracked_trees: &[Tracked],
        terminations: &mut HashMap<TreeId, Termination>,
        adopted: &mut Adopted,
    ) -> bool {
        if tracked_trees.is_empty() && adopted.none_possible() {
            return false;
        }
        for tracked in tracked_trees {
            let termination = terminations.entry(tracked.id).or_default();
            if tracked.end_requested && !termination.is_ending() {
                // Reported before a signal is sent: every process that ends from now on ends because of us.
                self.registry.report(tracked.id, Progress::Ending);
                termination.begin(&tracked.root, self.grace);
                if !tracked.root.isolated {
                    self.registry.report(tracked.id, Progress::Signalled);
                }
            }
        }
        let oldest = tracked_trees.iter().map(|tracked| tracked.root.start).min().unwrap_or(u64::MAX);
        let table = match Table::read(oldest) {
            Ok(table) => table,
            Err(error) => {
                tracing::error!(%error, "the process table cannot be read; ending processes waits for it");
                return tracked_trees.iter().any(|tracked| tracked.end_requested);
            }
        };
        let look = |tracked: &Tracked| {
            terminations.get(&tracked.id).map(|termination| termination.find_members(&tracked.root, &table))
        };
        let mut members: Vec<_> = tracked_trees.iter().map(|tracked| look(tracked).unwrap_or_default()).collect();
        adopted.assign(&table, tracked_trees, &mut members);
        let mut urgent = false;
        for (tracked, members) in tracked_trees.iter().zip(&members) {
            let Some(termination) = terminations.get_mut(&tracked.id) else { continue };
            termination.remember(&tracked.root, members);
            urgent |= tracked.end_requested && self.advance(tracked, termination, members);
        }
        urgent
    }

    /// Takes one step towards the end of a tree. Returns whether to look again soon.
    fn advance(&self, tracked: &Tracked, termination: &mut Termination, members: &[&Process]) -> bool {
        match termination.step(&tracked.root, members) {
            ScanResult::Alive => {
                self.registry.report(tracked.id, Progress::Signalled);
                true
            }
            ScanResult::Empty(exit) => {
                if termination.was_killed() {
                    self.registry.count_kill();
                }
                self.registry.report(tracked.id, Progress::Empty(exit));
                false
            }
            ScanResult::Stuck => {
                let pids = numbers(members);
                tracing::error!(?pids, "processes do not die of KILL; they are tried further");
                self.registry.report(tracked.id, Progress::Stuck);
                false
            }
        }
    }
}
