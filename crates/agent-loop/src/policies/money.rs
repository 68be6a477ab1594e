//! Money, of this run and of its session.

use serde::{Deserialize, Serialize};

use super::observation::Observation;

/// Follows what totals tell; nothing else knows a price. In millionths of a US dollar.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
#[serde(default)]
pub struct Money {
    run: u64,
    session: u64,
}

impl Money {
    /// Takes what was seen.
    pub fn observe(&mut self, seen: &Observation<'_>) {
        if let Observation::Totals(totals) = seen {
            self.run = self.run.max(totals.run_micro_usd);
            self.session = self.session.max(totals.session_micro_usd);
        }
    }

    /// What this run has cost, children included.
    pub fn run_micro_usd(self) -> u64 {
        self.run
    }

    /// What the whole session has cost, this run included.
    pub fn session_micro_usd(self) -> u64 {
        self.session
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::Totals;

    #[test]
    fn money_follows_totals_alone_and_never_runs_backwards() {
        let totals = |run, session| Totals { run_micro_usd: run, session_micro_usd: session, ..Totals::default() };
        let (less, more) = (totals(3, 10), totals(5, 9));
        let mut money = Money::default();
        for (seen, run, session) in [
            (Observation::Usage { input: 1_000, output: 1_000 }, 0, 0),
            (Observation::Totals(&less), 3, 10),
            (Observation::Totals(&more), 5, 10),
            (Observation::Totals(&less), 5, 10),
        ] {
            money.observe(&seen);
            assert_eq!((money.run_micro_usd(), money.session_micro_usd()), (run, session), "{seen:?}");
        }
    }
}
