//! A connection beside those of the store, for one asynchronous thread: for the lease of a node, and for hints.
//!
//! Its statements are in the dialect of PostgreSQL, and are not prepared.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Notification, Row};

use super::connect::{self, Limits};
use super::fault::{Cause, PgError};
use super::url::PostgresUrl;
use super::wire::Wire;
use crate::value::ValueRef;

/// The time of the database in milliseconds, as an expression. It advances within a transaction.
pub(crate) const CLOCK: &str = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";

/// A parameter, with its type.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// A connection. It makes progress only while one of its methods is awaited.
pub(super) struct Direct {
    client: Client,
    wire: Wire,
    /// The time for each answer.
    limit: Duration,
}

impl Direct {
    /// Connects to the first server that accepts writes. `name`: the application, as `pg_stat_activity` shows it. The time for
    /// an answer is a quarter more than that of a statement: the server cancels the statement first.
    ///
    /// # Errors
    /// No server accepts the connection, or a pooler gives it the session of another one.
    pub(super) async fn connect(url: &PostgresUrl, limits: &Limits, name: &str) -> Result<Self, PgError> {
        let mut direct = Self::bare(url, limits.statement + limits.statement / 4, name).await?;
        let facts = direct.query(&connect::facts(), &[]).await?;
        if let Err(error) = connect::check(facts.first()) {
            if error.cause() == Cause::Pooler {
                direct.batch(&connect::report_shared()).await?;
            }
            return Err(error);
        }
        direct.batch(&connect::session(url, limits)).await?;
        Ok(direct)
    }

    /// Connects without the parameters of the store's sessions, so that nothing of it depends on the session: a pooler may give
    /// it another one. Statements name the schema of their tables. `limit`: the time for an answer.
    ///
    /// # Errors
    /// No server accepts the connection.
    pub(super) async fn bare(url: &PostgresUrl, limit: Duration, name: &str) -> Result<Self, PgError> {
        let (client, connection) = connect::first(url, name).await?;
        Ok(Self { client, wire: Wire::new(connection), limit })
    }

    /// All rows of a statement.
    ///
    /// # Errors
    /// The statement has failed, or there was no answer in time. Then the connection is lost.
    pub(super) async fn query(&mut self, sql: &str, params: &[Parameter<'_>]) -> Result<Vec<Row>, PgError> {
        let answer = std::pin::pin!(self.client.query_typed(sql, params));
        let done = self.wire.answer(answer, self.limit).await?;
        done.map_err(|error| self.wire.reason(PgError::from_client(&error)))
    }

    /// Runs statements without parameters.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    pub(super) async fn batch(&mut self, sql: &str) -> Result<(), PgError> {
        let answer = std::pin::pin!(self.client.batch_execute(sql));
        let done = self.wire.answer(answer, self.limit).await?;
        done.map_err(|error| self.wire.reason(PgError::from_client(&error)))
    }

    /// Waits for notifications of the channels that it listens to.
    ///
    /// # Errors
    /// The connection is lost.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn heard(&mut self) -> Result<Vec<Notification>, PgError> {
        self.wire.heard().await
    }
}

/// Milliseconds for a statement.
pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// The milliseconds by which the database is ahead, if it has read its clock in the middle of the round trip.
pub(super) fn offset_ms(database: ValueRef<'_>, sent: SystemTime, round_trip: Duration) -> i64 {
    let ValueRef::Int(database) = database else { return 0 }; // the statement returns a number in each case
    let here = sent + round_trip / 2;
    database.saturating_sub(here.duration_since(UNIX_EPOCH).map_or(0, millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_counts_from_the_middle_of_the_round_trip() {
        let sent = UNIX_EPOCH + Duration::from_secs(100);
        assert_eq!(offset_ms(ValueRef::Int(100_500), sent, Duration::from_secs(1)), 0);
        assert_eq!(offset_ms(ValueRef::Int(3_700_000), sent, Duration::ZERO), 3_600_000);
        assert_eq!(offset_ms(ValueRef::Int(90_000), sent, Duration::ZERO), -10_000);
    }
}
