//! A database that has lost transactions, and what the daemons do that have seen them committed.
//!
//! A standby that was behind lacks the last commits of its primary server once it is promoted. So does a database that was
//! restored from an older copy. What a daemon has in memory then does not agree with the tables: it may not write any more,
//! and ends itself. The first daemon that notices the loss records it, and has all other nodes of the cluster end too: it
//! takes [`CUT_MS`] from each lease, and no renewal accepts a lease that is shorter than the one before.

use belay_protocol::BootId;
use tokio::sync::watch;

use super::direct::CLOCK;

/// The words of each refused statement of a daemon that has noticed a loss.
pub(crate) const HISTORY_LOST: &str =
    "the database has lost transactions that this daemon has seen committed; the daemon ends itself";

/// By how much the leases of all nodes become shorter, in milliseconds: 4 s, which is more than the time between two renewals.
/// What is left is longer than the time in which a node that hears of nothing ends its processes.
const CUT_MS: i64 = 4_000;

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use belay_testkit::postgres::{PostgresServer, Programs, TestDatabase};

    use super::super::{IDLE, Limits, Opening, PgConnection, PostgresUrl, open_schema};
    use super::*;

    #[test]
    fn the_first_record_of_a_loss_shortens_all_leases_and_a_later_one_leaves_those_of_new_nodes() {
        let Some(programs) = Programs::for_test().expect("programs") else { return };
        let database = TestDatabase::new(PostgresServer::shared(&programs).expect("a server")).expect("a database");
        let url = PostgresUrl::parse(&format!("{}?sslmode=disable", database.url())).expect("an address");
        let limit = Duration::from_secs(60);
        let limits = Limits { statement: limit, lock: limit, idle: IDLE };
        let mut conn = PgConnection::connect(&url, &limits, "test").expect("a connection");
        open_schema(&mut conn, url.schema(), Opening::ALONE).expect("a schema");
        let (a, b, new) = (BootId::new(), BootId::new(), BootId::new());
        let register = |boot: BootId, name: &str, started: &str| {
            let boot = boot.as_uuid().simple();
            let columns = "boot, name, version, schema_min, schema_max, settings, started_at, lease_until";
            let row = format!("decode('{boot}', 'hex'), '{name}', '1', 1, 1, 'same', {started}, 20000");
            database.sql(&format!("INSERT INTO belay.nodes ({columns}) VALUES ({row})")).expect("a node");
        };
        let found = || {
            let leases = "SELECT string_agg(lease_until::text, ' ' ORDER BY name) FROM belay.nodes";
            let losses = "SELECT string_agg(lost::text, ' ' ORDER BY lost) FROM belay.writers WHERE lost_at > 0";
            (database.sql(leases).expect("leases"), database.sql(losses).expect("losses"))
        };
        register(a, "a", "1");
        register(b, "b", "1");
        conn.batch(&History::new(a).record(url.schema(), 3)).expect("recorded");
        assert_eq!(found(), ("16000 16000".to_owned(), "3".to_owned()));
        register(new, "new", &format!("{CLOCK} + 1"));
        conn.batch(&History::new(b).record(url.schema(), 5)).expect("recorded");
        conn.batch(&History::new(b).record(url.schema(), 6)).expect("recorded");
        assert_eq!(found(), ("16000 16000 20000".to_owned(), "3 5".to_owned()), "the first record of a writer stays");
    }
}
