//! The thread that ends trees.
//!
//! One thread for all of them: one walk over the process table serves every tree, however many are being ended, and it
//! needs no async runtime, so that it works on while the daemon panics.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::adopted::Adopted;
use super::registry::{Progress, Registry, Tracked, TreeId};
use super::table::{Process, Table};
use super::termination::{Look, Termination, numbers};

/// Shortest pause between two looks while a tree is being ended. 5 ms: far below what a person notices.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Pause between two looks while nothing is being ended: what has left its parent is remembered, and reaped.
const SWEEP: Duration = Duration::from_secs(2);

/// Looks after trees, and ends them.
#[derive(Debug)]
pub(super) struct ProcessReaper {
    pub(super) registry: Arc<Registry>,
    pub(super) grace: Duration,
}

impl ProcessReaper {
    /// Ends what is wanted to end, until nothing more is accepted and everything has ended that can.
    pub(super) fn run(&self, mut adopted: Adopted) {
        let mut terminations: HashMap<TreeId, Termination> = HashMap::new();
        loop {
            let tracked_trees = self.registry.tracked_trees();
            terminations.retain(|id, _| tracked_trees.iter().any(|tracked| tracked.id == *id));
            let begin = Instant::now();
            let look = AssertUnwindSafe(|| self.look_at(&tracked_trees, &mut terminations, &mut adopted));
            let urgent = catch_unwind(look).unwrap_or_else(|_| {
                // The last brake does not fail with a mistake in it: what is known is kept, and looked at again
                // at the slower pace.
                tracing::error!("looking at processes has panicked");
                false
            });
            if self.registry.is_done() {
                return adopted.end_all();
            }
            let idle = tracked_trees.is_empty() && adopted.is_empty();
            // On a machine with very many processes a walk takes long; it shall take half of one processor at most.
            let pause = if urgent { LOOK_AGAIN.max(begin.elapsed()) } else { SWEEP };
            self.registry.wait((!idle).then_some(pause));
        }
    }

    /// Looks at every tree once. Whether it is worth while to look again soon.
    fn look_at(
        &self,
        tracked_trees: &[Tracked],
        terminations: &mut HashMap<TreeId, Termination>,
        adopted: &mut Adopted,
    ) -> bool {
        for tracked in tracked_trees {
            let termination = terminations.entry(tracked.id).or_default();
            if tracked.wanted && !termination.is_ending() {
                // Said before anything is sent: what ends from now on ends because of us.
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
                return tracked_trees.iter().any(|tracked| tracked.wanted);
            }
        };
        let look = |tracked: &Tracked| {
            terminations.get(&tracked.id).map(|termination| termination.look(&tracked.root, &table))
        };
        let mut members: Vec<_> = tracked_trees.iter().map(|tracked| look(tracked).unwrap_or_default()).collect();
        adopted.assign(&table, tracked_trees, &mut members);
        let mut urgent = false;
        for (tracked, members) in tracked_trees.iter().zip(&members) {
            let Some(termination) = terminations.get_mut(&tracked.id) else { continue };
            termination.remember(&tracked.root, members);
            urgent |= tracked.wanted && self.go_on(tracked, termination, members);
        }
        urgent
    }

    /// Takes a step towards the end of one tree. Whether it is worth while to look again soon.
    fn go_on(&self, tracked: &Tracked, termination: &mut Termination, members: &[&Process]) -> bool {
        match termination.step(&tracked.root, members) {
            Look::Lives => {
                self.registry.report(tracked.id, Progress::Signalled);
                true
            }
            Look::Empty(exit) => {
                if termination.was_killed() {
                    self.registry.count_kill();
                }
                self.registry.report(tracked.id, Progress::Empty(exit));
                false
            }
            Look::Stuck => {
                let pids = numbers(members);
                tracing::error!(?pids, "processes do not die of KILL; they are tried further");
                self.registry.report(tracked.id, Progress::Stuck);
                false
            }
        }
    }
}
