//! The tables of a schema, compared with those that the migrations of this program make.

use std::collections::BTreeSet;

use super::{Migration, broken, column};
use crate::error::OpenError;
use crate::postgres::PgConnection;
use crate::value::params;

/// Tables that always have one row.
const SINGLE_ROWS: [&str; 4] = ["belay_schema", "indexed", "pings", "routine_changes"];

/// The tables of a schema.
pub(super) struct Tables {
    all: BTreeSet<String>,
    /// Those that a crash of the server empties.
    unlogged: BTreeSet<String>,
}

impl Tables {
    /// Tables, views and the like. Sequences and indexes belong to tables.
    pub(super) fn of(conn: &mut PgConnection, name: &str) -> Result<Self, OpenError> {
        let sql =
            "SELECT c.relname, c.relpersistence = 'p' FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                   WHERE n.nspname = ?1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')";
        let mut tables = Self { all: BTreeSet::new(), unlogged: BTreeSet::new() };
        for row in conn.query(sql, &[], &params![name]).map_err(broken)? {
            let table: String = column(&row, 0)?;
            if !column::<bool>(&row, 1)? {
                tables.unlogged.insert(table.clone());
            }
            tables.all.insert(table);
        }
        Ok(tables)
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Refuses tables among which there is none of Belay's versions.
    pub(super) fn check_own(&self, name: &str) -> Result<(), OpenError> {
        if self.is_empty() || self.all.contains("belay_schema") {
            return Ok(());
        }
        Err(OpenError::PostgresForeign { schema: name.into(), tables: listed(&self.all) })
    }

    /// Compares the tables with those of these migrations. `newer`: a newer program may have added some.
    pub(super) fn check(&self, name: &str, migrations: &[Migration], newer: bool) -> Result<(), OpenError> {
        let known = tables_of(migrations);
        let missing: Vec<_> = known.difference(&self.all).collect();
        if !missing.is_empty() {
            return Err(OpenError::PostgresIncomplete { schema: name.into(), tables: listed(missing) });
        }
        if !self.unlogged.is_empty() {
            return Err(OpenError::PostgresUnlogged { schema: name.into(), tables: listed(&self.unlogged) });
        }
        let foreign: Vec<_> = self.all.difference(&known).collect();
        if foreign.is_empty() || newer {
            return Ok(());
        }
        Err(OpenError::PostgresForeign { schema: name.into(), tables: listed(foreign) })
    }
}

/// The names of the tables that exist after these migrations.
fn tables_of(migrations: &[Migration]) -> BTreeSet<String> {
    let mut tables = BTreeSet::new();
    for line in migrations.iter().flat_map(|migration| migration.sql.lines()) {
        if let Some(rest) = line.strip_prefix("CREATE TABLE ") {
            tables.extend(rest.split([' ', '(']).next().map(str::to_owned));
        } else if let Some(rest) = line.strip_prefix("DROP TABLE ") {
            tables.remove(rest.trim_end_matches(';'));
        }
    }
    tables
}

/// Refuses a schema in which a table was emptied that always has a row.
pub(super) fn check_rows(conn: &mut PgConnection, name: &str) -> Result<(), OpenError> {
    for table in SINGLE_ROWS {
        if conn.query(&format!("SELECT 1 FROM {table}"), &[], &[]).map_err(broken)?.len() != 1 {
            return Err(OpenError::PostgresEmptied { schema: name.into(), table: table.into() });
        }
    }
    Ok(())
}

/// The first names, for a message.
fn listed<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    const SHOWN: usize = 5;
    let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
    let more = if names.len() > SHOWN { format!(" and {} more", names.len() - SHOWN) } else { String::new() };
    format!("{}{more}", names[..names.len().min(SHOWN)].join(", "))
}
