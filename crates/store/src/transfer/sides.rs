//! The two stores of a migration: opened and locked, the target empty and marked as unfinished.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::tables::{INDEX, STATE, TABLES, Table};
use super::{TransferError, words};
use crate::config::StoreUrl;
use crate::error::OpenError;
use crate::postgres::{PostgresUrl, SCHEMA_EDITION, inspect_schema};
use crate::sql::{Connection, Engine, Failure, PgSession, PgSettings, PostgresLimits, Role};
use crate::sqlite::{
    EDITION, Locks, Version, known_schema, lock_store, open_reader, open_writer, refuse_interrupted_restore,
};
use crate::unfinished::{UNFINISHED, Unfinished};
use crate::value::params;

/// Limits of the statements. Ten minutes: the longest one counts the rows of a table.
const LIMITS: PostgresLimits =
    PostgresLimits { connections: 1, statement: Duration::from_secs(600), lock: Duration::from_secs(10) };

/// An open and locked store.
pub(super) struct Side {
    pub(super) conn: Connection,
    /// Dropped after the connection, see there.
    _locks: Option<Locks>,
}

/// Opens the store that is read. No daemon can open it meanwhile.
pub(super) fn source(url: &StoreUrl) -> Result<Side, TransferError> {
    match url {
        StoreUrl::Memory => Err(TransferError::Memory),
        StoreUrl::Sqlite(path) => sqlite_source(path),
        StoreUrl::Postgres(url) => {
            // Opening it would create the tables.
            let found = inspect_schema(url, &LIMITS.of_statements()).map_err(TransferError::Source)?;
            match found.version {
                None => Err(TransferError::NoSource(url.to_string())),
                Some(version) if version < found.known => {
                    Err(TransferError::Outdated { found: version, known: found.known })
                }
                Some(_) => session(url, Role::Source).map_err(TransferError::Source),
            }
        }
    }
}

fn sqlite_source(path: &Path) -> Result<Side, TransferError> {
    let missing = || TransferError::NoSource(path.display().to_string());
    let io = |source| TransferError::Source(OpenError::Io { path: path.into(), source });
    if !path.try_exists().map_err(io)? {
        return Err(missing());
    }
    let locks = lock_store(path).map_err(TransferError::Source)?;
    refuse_interrupted_restore(path).map_err(TransferError::Source)?;
    let conn = open_reader(path).map_err(TransferError::Source)?;
    let version = Version::of(&conn).map_err(|error| TransferError::Source(error.into()))?;
    version.check().map_err(TransferError::Source)?;
    match version.schema {
        0 => Err(missing()),
        found if found < known_schema() => Err(TransferError::Outdated { found, known: known_schema() }),
        _ => Ok(Side { conn: Connection::Sqlite(conn.into()), _locks: Some(locks) }),
    }
}

/// Opens the store that is written, and creates it if it is missing. No daemon can open it meanwhile.
pub(super) fn target(url: &StoreUrl) -> Result<Side, TransferError> {
    let opened = match url {
        StoreUrl::Memory => return Err(TransferError::Memory),
        StoreUrl::Sqlite(path) => open_writer(path, true, Unfinished::Accept)
            .map(|(conn, locks)| Side { conn: Connection::Sqlite(conn.into()), _locks: locks }),
        StoreUrl::Postgres(url) => session(url, Role::Target),
    };
    opened.map_err(TransferError::Target)
}

fn session(url: &PostgresUrl, role: Role) -> Result<Side, OpenError> {
    let session = PgSession::open(Arc::new(PgSettings::new(url.clone(), LIMITS, None)), role)?;
    Ok(Side { conn: Connection::Postgres(Box::new(session)), _locks: None })
}

impl Side {
    /// Whether the store is the target of a migration that was not finished.
    pub(super) fn is_unfinished(&self) -> Result<bool, TransferError> {
        let sql = match self.conn.engine() {
            Engine::Sqlite => "PRAGMA application_id",
            Engine::Postgres => "SELECT edition FROM belay_schema",
        };
        let edition = self.conn.row(sql, [], |row| row.get::<_, i64>(0)).map_err(failed)?;
        Ok(edition == Some(UNFINISHED.into()))
    }

    /// The tables with data, each with its number of rows.
    pub(super) fn filled(&self, tables: &[Table]) -> Result<Vec<(&'static str, u64)>, TransferError> {
        let counted = tables.iter().filter(|table| !STATE.contains(&table.name)).map(|table| {
            let rows = self.count(table.name)?;
            Ok((table.name, rows))
        });
        Ok(counted.collect::<Result<Vec<_>, TransferError>>()?.into_iter().filter(|(_, rows)| *rows > 0).collect())
    }

    /// The number of rows of a table.
    pub(super) fn count(&self, table: &str) -> Result<u64, TransferError> {
        let sql = format!("SELECT COUNT(*) FROM {table}");
        let rows = self.conn.row(&sql, [], |row| row.get::<_, i64>(0)).map_err(failed)?;
        Ok(u64::try_from(rows.unwrap_or(0)).unwrap_or(0))
    }

    /// Marks the store as unfinished, and deletes all rows. From here on [`crate::SqlStore`] refuses it.
    pub(super) fn begin(&self) -> Result<(), TransferError> {
        self.transaction(|conn| {
            mark(conn, UNFINISHED)?;
            match conn.engine() {
                Engine::Postgres => {
                    conn.execute(&format!("TRUNCATE {}", TABLES.join(", ")), [])?;
                }
                Engine::Sqlite => {
                    for table in TABLES.into_iter().filter(|table| *table != INDEX) {
                        conn.execute(&format!("DELETE FROM {table}"), [])?;
                    }
                    conn.execute("INSERT INTO message_index (message_index) VALUES ('delete-all')", [])?;
                }
            }
            Ok(())
        })
    }

    /// Removes the mark: the store is complete.
    pub(super) fn complete(&self) -> Result<(), TransferError> {
        let edition = match self.conn.engine() {
            Engine::Sqlite => EDITION,
            Engine::Postgres => {
                // The planner knows nothing of the new rows yet.
                self.conn.execute(&format!("ANALYZE {}", TABLES.join(", ")), []).map_err(failed)?;
                SCHEMA_EDITION
            }
        };
        self.transaction(|conn| mark(conn, edition))?;
        self.conn.finish();
        Ok(())
    }

    /// The highest number that each table has ever given to a row, for tables that give none twice.
    pub(super) fn numbers(&self) -> Result<BTreeMap<String, i64>, TransferError> {
        let sql = match self.conn.engine() {
            Engine::Sqlite => "SELECT name, seq FROM sqlite_sequence",
            Engine::Postgres => {
                "SELECT c.table_name, s.last_value
                 FROM information_schema.columns c JOIN pg_sequences s
                   ON format('%I.%I', s.schemaname, s.sequencename)
                      = pg_get_serial_sequence(format('%I.%I', c.table_schema, c.table_name), c.column_name)
                 WHERE c.table_schema = current_schema() AND c.is_identity = 'YES' AND s.last_value IS NOT NULL"
            }
        };
        let rows = self.conn.rows(sql, [], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)));
        Ok(rows.map_err(failed)?.into_iter().collect())
    }

    /// Lets each table continue after its highest number, and after that of the source.
    pub(super) fn continue_after(&self, numbers: &BTreeMap<String, i64>) -> Result<(), TransferError> {
        self.transaction(|conn| match conn.engine() {
            Engine::Sqlite => {
                // Only tables with AUTOINCREMENT use a number that is stored. The others continue after the highest row.
                let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE '%AUTOINCREMENT%'";
                for table in conn.rows(sql, [], |row| row.get::<_, String>(0))? {
                    let Some(number) = numbers.get(&table) else { continue };
                    conn.execute("DELETE FROM sqlite_sequence WHERE name = ?1", params![table])?;
                    conn.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)", params![table, number])?;
                }
                Ok(())
            }
            Engine::Postgres => {
                let sql = "SELECT CAST(table_name AS TEXT), CAST(column_name AS TEXT) FROM information_schema.columns
                           WHERE table_schema = current_schema() AND is_identity = 'YES'";
                let identities = conn.rows(sql, [], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
                for (table, column) in identities {
                    let known = numbers.get(&table).copied().unwrap_or(0);
                    let highest = format!("SELECT COALESCE(MAX({column}), 0) FROM {table}");
                    let highest = conn.row(&highest, [], |row| row.get::<_, i64>(0))?.unwrap_or(0).max(known);
                    // Without a number that was given, the next one is 1.
                    let set = "SELECT setval(pg_get_serial_sequence(?1, ?2), greatest(?3, 1), ?3 > 0)";
                    conn.row(set, params![table, column, highest], |_| Ok(()))?;
                }
                Ok(())
            }
        })
    }

    fn transaction(&self, run: impl FnOnce(&Connection) -> Result<(), Failure>) -> Result<(), TransferError> {
        let done = self.conn.begin().and_then(|_| run(&self.conn)).and_then(|()| self.conn.commit()?.or_fail());
        done.map_err(|failure| {
            let _ = self.conn.rollback(); // the failure says more
            failed(failure)
        })
    }
}

fn mark(conn: &Connection, edition: u32) -> Result<(), Failure> {
    match conn.engine() {
        Engine::Sqlite => conn.execute(&format!("PRAGMA application_id = {edition}"), [])?,
        Engine::Postgres => conn.execute("UPDATE belay_schema SET edition = ?1", params![edition])?,
    };
    Ok(())
}

fn failed(failure: Failure) -> TransferError {
    TransferError::Database(words(&failure))
}
