//! A build without the feature `postgres` has no connection to PostgreSQL. A session needs an address, and none exists: the
//! methods here are never called.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use belay_protocol::BootId;
use uuid::Uuid;

use super::PostgresLimits;
use super::connection::Done;
use super::outcome::{Begun, Committed};
use crate::error::OpenError;
use crate::postgres::{History, Limits, PgRow, PostgresUrl};
use crate::value::Params;

impl PostgresLimits {
    /// The limits of statements.
    pub(crate) fn of_statements(&self) -> Limits {
        Limits
    }
}

/// The state that connections of a store share in other builds.
pub(crate) struct PgSettings(PostgresUrl);

impl PgSettings {
    /// The settings of one opening of the store.
    pub(crate) fn new(url: PostgresUrl, _limits: PostgresLimits, _beside: Option<BootId>) -> Self {
        Self(url)
    }

    /// The counter of round trips.
    pub(crate) fn round_trips(&self) -> Arc<AtomicU64> {
        self.0.absent()
    }

    /// Whether the database has what this opening of the store has seen committed.
    pub(crate) fn history(&self) -> Arc<History> {
        self.0.absent()
    }
}

/// The use of a connection in other builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The one that writes.
    Writer,
    /// One of those that read.
    Reader,
    /// The one that reads everything for a migration.
    Source,
    /// The one that writes everything for a migration.
    Target,
}

/// A connection of one thread in other builds.
pub(crate) struct PgSession(Arc<PgSettings>);

impl PgSession {
    /// Connects to nothing.
    ///
    /// # Errors
    /// None: there is no address.
    pub(crate) fn open(settings: Arc<PgSettings>, _role: Role) -> Result<Self, OpenError> {
        Ok(Self(settings))
    }

    fn absent(&self) -> ! {
        self.0.0.absent()
    }

    /// All rows of a statement.
    pub(crate) fn query(&self, _sql: &str, _params: &impl Params) -> Done<Vec<PgRow>> {
        self.absent()
    }

    /// Runs a statement, and returns the number of changed rows.
    pub(crate) fn execute(&self, _sql: &str, _params: &impl Params) -> Done<usize> {
        self.absent()
    }

    /// Sends a statement whose result nobody needs.
    pub(crate) fn post(&self, _sql: &str, _params: &impl Params) -> Done<()> {
        self.absent()
    }

    /// Sends an insert that returns the numbers of its rows.
    pub(crate) fn post_insert(&self, _sql: &str, _params: &impl Params) -> Done<()> {
        self.absent()
    }

    /// Sends a query that changes nothing.
    pub(crate) fn ask(&self, _sql: &str, _params: &impl Params) -> Done<u64> {
        self.absent()
    }

    /// The rows of a query of [`ask`](Self::ask).
    pub(crate) fn answer(&self, _number: u64) -> Done<Vec<PgRow>> {
        self.absent()
    }

    /// Lets the open transaction pause for longer.
    pub(crate) fn may_pause(&self, _beyond: Duration) {
        self.absent()
    }

    /// The longest wait for a lock, over all repetitions of a transaction.
    pub(crate) fn lock_limit(&self) -> Duration {
        self.absent()
    }

    /// Lets the open transaction wait for the locks of its further statements for so long.
    pub(crate) fn wait_for_locks(&self, _limit: Duration) {
        self.absent()
    }

    /// This opening of the store.
    pub(crate) fn boot(&self) -> Uuid {
        self.absent()
    }

    /// The counter of deadlocks in which the server has ended a transaction of this session.
    pub(crate) fn deadlocks(&self) -> Arc<AtomicU64> {
        self.absent()
    }

    /// The number of changed rows so far.
    pub(crate) fn changes(&self) -> u64 {
        self.absent()
    }

    /// Whether a transaction is open.
    pub(crate) fn in_transaction(&self) -> bool {
        self.absent()
    }

    /// Whether nobody knows whether the last transaction was committed.
    pub(crate) fn is_unclear(&self) -> bool {
        self.absent()
    }

    /// Opens a transaction.
    pub(crate) fn begin(&self) -> Done<Begun> {
        self.absent()
    }

    /// Commits the transaction.
    pub(crate) fn commit(&self) -> Done<Committed> {
        self.absent()
    }

    /// Rolls the transaction back.
    pub(crate) fn rollback(&self) -> Done<()> {
        self.absent()
    }

    /// Sets a savepoint.
    pub(crate) fn savepoint(&self) -> Done<()> {
        self.absent()
    }

    /// Rolls back to the savepoint, and releases it.
    pub(crate) fn rollback_to_savepoint(&self) -> Done<()> {
        self.absent()
    }

    /// Releases the savepoint.
    pub(crate) fn release_savepoint(&self) -> Done<()> {
        self.absent()
    }
}
