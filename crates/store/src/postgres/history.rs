//! A database that has lost transactions, and what the daemons do that have seen them committed.
//!
//! A standby that was behind lacks the last commits of its primary server once it is promoted. So does a database that was
//! restored from an older copy. What a daemon has in memory then does not agree with the tables: it may not write any more,
//! and ends itself. The first daemon that notices the loss records it, and has all other nodes of the cluster end too: it
//! takes [`CUT_MS`] from each lease, and no renewal accepts a lease that is shorter than the one before.

use belay_protocol::{BootId, UnixMillis};
use tokio::sync::watch;

use super::direct::CLOCK;

/// The words of each refused statement of a daemon that has noticed a loss.
pub(crate) const HISTORY_LOST: &str =
    "the database has lost transactions that this daemon has seen committed; the daemon ends itself";

/// By how much the leases of all nodes become shorter, in milliseconds: 4 s, which is more than the time between two renewals.
/// What is left is longer than the time in which a node that hears of nothing ends its processes.
const CUT_MS: i64 = 4_000;

/// A loss of committed transactions that a daemon noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseLoss {
    /// When it was noticed, by the clock of the database.
    pub noticed_at: UnixMillis,
    /// The date of the newest event that was left; `None`: there was no event.
    pub kept_until: Option<UnixMillis>,
    /// The number of lost transactions of the daemon that noticed it. 0: those of another daemon were lost.
    pub transactions: u64,
}

/// Whether the database has what this opening of the store has seen committed.
#[derive(Debug)]
pub(crate) struct History {
    boot: BootId,
    lost: watch::Sender<bool>,
}

impl History {
    pub(crate) fn new(boot: BootId) -> Self {
        Self { boot, lost: watch::Sender::new(false) }
    }

    /// Whether a loss was noticed.
    pub(crate) fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Notices a loss. It is recorded before, see [`record`](Self::record).
    pub(crate) fn lose(&self) {
        self.lost.send_replace(true);
    }

    /// Changes once, to `true`.
    pub(crate) fn lost(&self) -> watch::Receiver<bool> {
        self.lost.subscribe()
    }

    /// The statements that record a loss, as one transaction. `lost`: the number of lost transactions of this writer.
    ///
    /// A node that has started after a recorded loss keeps its lease: it has never seen what was lost.
    pub(crate) fn record(&self, schema: &str, lost: u64) -> String {
        let boot = format!("decode('{}', 'hex')", self.boot.as_uuid().simple());
        format!(
            "SELECT pg_advisory_xact_lock(hashtextextended('{schema} nodes', 0));
             UPDATE \"{schema}\".nodes SET lease_until = lease_until - {CUT_MS}
             WHERE ended_at IS NULL AND NOT EXISTS (SELECT 1 FROM \"{schema}\".writers
                 WHERE lost_at >= (SELECT started_at FROM \"{schema}\".nodes WHERE boot = {boot}));
             INSERT INTO \"{schema}\".writers AS w (boot, commits, lost, lost_at, kept_until)
             VALUES ({boot}, 0, {lost}, {CLOCK}, (SELECT at FROM \"{schema}\".events ORDER BY seq DESC LIMIT 1))
             ON CONFLICT (boot) DO UPDATE
             SET lost = EXCLUDED.lost, lost_at = EXCLUDED.lost_at, kept_until = EXCLUDED.kept_until
             WHERE w.lost_at IS NULL"
        )
    }
}
