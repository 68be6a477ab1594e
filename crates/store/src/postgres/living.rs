//! The living nodes of a cluster, for a registration and for a migration. Both hold one lock until their end.

use super::connection::PgConnection;
use super::direct::CLOCK;
use super::fault::PgError;
use super::schema::column;
use crate::error::OpenError;
use crate::value::params;

/// A node that lives. Its row has no end yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Living {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) settings: String,
    /// The schema of its program.
    pub(super) schema: u32,
    /// The rest of its lease in milliseconds, by the clock of the database. Negative: the lease is over.
    pub(super) left_ms: i64,
}

/// Excludes other registrations and migrations until the end of the transaction, ends the nodes whose lease is over, and
/// returns those that live.
pub(super) fn lock_living(conn: &mut PgConnection) -> Result<Vec<Living>, OpenError> {
    let lock = "SELECT CAST(pg_advisory_xact_lock(hashtextextended(current_schema() || ' nodes', 0)) AS TEXT)";
    conn.query(lock, &[], &[]).map_err(broken)?;
    let end = format!(
        "UPDATE nodes SET ended_at = {CLOCK}, ended_by = 'lease' WHERE ended_at IS NULL AND lease_until <= {CLOCK}"
    );
    conn.execute(&end, &[], &[]).map_err(broken)?;
    living(conn)
}

/// The nodes that live, by their names. A program reads them before it migrates an older schema: the statement uses only
/// columns of the oldest schema that the program opens.
pub(super) fn living(conn: &mut PgConnection) -> Result<Vec<Living>, OpenError> {
    let sql = format!(
        "SELECT name, version, settings, schema_max, lease_until - {CLOCK} FROM nodes
         WHERE ended_at IS NULL ORDER BY name"
    );
    let rows = conn.query(&sql, &[], &params![]).map_err(broken)?;
    let living = rows.iter().map(|row| {
        Ok(Living {
            name: column(row, 0)?,
            version: column(row, 1)?,
            settings: column(row, 2)?,
            schema: column(row, 3)?,
            left_ms: column(row, 4)?,
        })
    });
    living.collect()
}

fn broken(error: PgError) -> OpenError {
    OpenError::Database(Box::new(error))
}
