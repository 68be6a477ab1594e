//! The thread that ends trees.
//!
//! One thread for all of them: one walk over the process table serves every tree, however many are being ended, and it
//! needs no async runtime, so that it works on while the daemon panics.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ending::{Care, Look, numbers};
use super::registry::{Charge, Progress, Registry, TreeId};
use super::table::Table;

/// Shortest pause between two looks while a tree is being ended. 5 ms: far below what a person notices.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Pause between two looks while nothing is being ended: what has left its parent is remembered, and reaped.
const SWEEP: Duration = Duration::from_secs(2);

/// Looks after trees, and ends them.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) registry: Arc<Registry>,
    pub(super) grace: Duration,
}

impl Keeper {
    /// Ends what is wanted to end, until nothing more is accepted and everything has ended that can.
    pub(super) fn run(&self) {
        let mut cares: HashMap<TreeId, Care> = HashMap::new();
        loop {
            let charges = self.registry.charges();
            cares.retain(|id, _| charges.iter().any(|charge| charge.id == *id));
            let begin = Instant::now();
            let urgent = !charges.is_empty() && self.look_at(&charges, &mut cares);
            if self.registry.is_done() {
                return;
            }
            // On a machine with very many processes a walk takes long; it shall take half of one processor at most.
            let pause = if urgent { LOOK_AGAIN.max(begin.elapsed()) } else { SWEEP };
            self.registry.wait((!charges.is_empty()).then_some(pause));
        }
    }

    /// Looks at every tree once. Whether it is worth while to look again soon.
    fn look_at(&self, charges: &[Charge], cares: &mut HashMap<TreeId, Care>) -> bool {
        for charge in charges.iter().filter(|charge| charge.wanted) {
            let care = cares.entry(charge.id).or_default();
            if !care.is_ending() {
                self.registry.report(charge.id, Progress::Ending);
                care.begin(&charge.root, self.grace);
            }
        }
        let table = match Table::read() {
            Ok(table) => table,
            Err(error) => {
                tracing::error!(%error, "the process table cannot be read; ending processes waits for it");
                return charges.iter().any(|charge| charge.wanted);
            }
        };
        let mut urgent = false;
        for charge in charges {
            let care = cares.entry(charge.id).or_default();
            urgent |= self.look_at_one(charge, care, &table);
        }
        urgent
    }

    fn look_at_one(&self, charge: &Charge, care: &mut Care, table: &Table) -> bool {
        let members = care.look(&charge.root, table);
        if !charge.wanted {
            return false;
        }
        match care.step(&charge.root, &members) {
            Look::Lives => {
                self.registry.report(charge.id, Progress::Signalled);
                true
            }
            Look::Empty(exit) => {
                if care.was_killed() {
                    self.registry.count_kill();
                }
                self.registry.report(charge.id, Progress::Empty(exit));
                false
            }
            Look::Stuck => {
                let pids = numbers(&members);
                tracing::error!(?pids, "processes do not die of KILL; they are tried further");
                self.registry.report(charge.id, Progress::Stuck);
                false
            }
        }
    }
}
