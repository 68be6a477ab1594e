//! The thread that ends trees.
//!
//! One thread for all of them: one walk over the process table serves every tree, however many are being ended, and it
//! needs no async runtime, so that it works on while the daemon panics.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::adopted::Adopted;
use super::ending::{Care, Look, numbers};
use super::registry::{Charge, Progress, Registry, TreeId};
use super::table::{Process, Table};

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
    pub(super) fn run(&self, mut adopted: Adopted) {
        let mut cares: HashMap<TreeId, Care> = HashMap::new();
        loop {
            let charges = self.registry.charges();
            cares.retain(|id, _| charges.iter().any(|charge| charge.id == *id));
            let begin = Instant::now();
            let look = AssertUnwindSafe(|| self.look_at(&charges, &mut cares, &mut adopted));
            let urgent = catch_unwind(look).unwrap_or_else(|_| {
                // The last brake does not fail with a mistake in it: what is known is kept, and looked at again
                // at the slower pace.
                tracing::error!("looking at processes has panicked");
                false
            });
            if self.registry.is_done() {
                return adopted.end_all();
            }
            let idle = charges.is_empty() && adopted.is_empty();
            // On a machine with very many processes a walk takes long; it shall take half of one processor at most.
            let pause = if urgent { LOOK_AGAIN.max(begin.elapsed()) } else { SWEEP };
            self.registry.wait((!idle).then_some(pause));
        }
    }

    /// Looks at every tree once. Whether it is worth while to look again soon.
    fn look_at(&self, charges: &[Charge], cares: &mut HashMap<TreeId, Care>, adopted: &mut Adopted) -> bool {
        for charge in charges {
            let care = cares.entry(charge.id).or_default();
            if charge.wanted && !care.is_ending() {
                // Said before anything is sent: what ends from now on ends because of us.
                self.registry.report(charge.id, Progress::Ending);
                care.begin(&charge.root, self.grace);
                if !charge.root.isolated {
                    self.registry.report(charge.id, Progress::Signalled);
                }
            }
        }
        let oldest = charges.iter().map(|charge| charge.root.start).min().unwrap_or(u64::MAX);
        let table = match Table::read(oldest) {
            Ok(table) => table,
            Err(error) => {
                tracing::error!(%error, "the process table cannot be read; ending processes waits for it");
                return charges.iter().any(|charge| charge.wanted);
            }
        };
        let look = |charge: &Charge| cares.get(&charge.id).map(|care| care.look(&charge.root, &table));
        let mut members: Vec<_> = charges.iter().map(|charge| look(charge).unwrap_or_default()).collect();
        adopted.assign(&table, charges, &mut members);
        let mut urgent = false;
        for (charge, members) in charges.iter().zip(&members) {
            let Some(care) = cares.get_mut(&charge.id) else { continue };
            care.remember(&charge.root, members);
            urgent |= charge.wanted && self.go_on(charge, care, members);
        }
        urgent
    }

    /// Takes a step towards the end of one tree. Whether it is worth while to look again soon.
    fn go_on(&self, charge: &Charge, care: &mut Care, members: &[&Process]) -> bool {
        match care.step(&charge.root, members) {
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
                let pids = numbers(members);
                tracing::error!(?pids, "processes do not die of KILL; they are tried further");
                self.registry.report(charge.id, Progress::Stuck);
                false
            }
        }
    }
}
