//! The tables that a migration copies, with their columns.

use crate::error::OpenError;
use crate::sql::{Connection, Failure, Row};
use crate::sqlite::open_in_memory;
use crate::value::{Kind, params};

/// The tables that are copied, in this order. `message_index` is built anew from `messages`; `belay_schema` and `writers`
/// belong to a PostgreSQL schema itself.
pub(super) const TABLES: [&str; 44] = [
    "sessions",
    "threads",
    "thread_index",
    "skill_snapshots",
    "principals",
    "pairings",
    "paired_people",
    "moved_conversations",
    "sign_ins",
    "runs",
    "messages",
    "indexed",
    "events",
    "outbox",
    "approvals",
    "grants",
    "uploads",
    "blob_references",
    "secrets",
    "handled_inputs",
    "spend",
    "reservations",
    "notes",
    "note_embeddings",
    "jobs",
    "routines",
    "routine_changes",
    "routine_runs",
    "tool_breakers",
    "freezes",
    "pings",
    "nodes",
    "work_leases",
    "stop_orders",
    "stop_acks",
    "node_mail",
    "budgets",
    "budget_slices",
    "blobs",
    "kept_outputs",
    "mcp_pins",
    "cursors",
    "sign_in_links",
    "message_index",
];

/// The full-text index.
pub(super) const INDEX: &str = "message_index";

/// Tables in which a store without data has a row.
pub(super) const STATE: [&str; 3] = ["indexed", "routine_changes", "pings"];

/// The column by which the rows of a table without a primary key are ordered.
const KEYS: [(&str, &str); 1] = [("routines", "id")];

/// The table with the messages, whose words are in the full-text index.
const MESSAGES: &str = "messages";

/// A table.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    /// The columns that are not computed from others.
    pub(super) columns: Vec<Column>,
    /// The places of the columns of the key, by which the rows are read in order.
    pub(super) key: Vec<usize>,
    /// Inserts a row with all columns.
    pub(super) insert: String,
}

/// A column.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
}

impl Table {
    /// The tables of the schema of this program.
    ///
    /// # Errors
    /// There is no memory for them.
    pub(super) fn all() -> Result<Vec<Self>, OpenError> {
        let conn = Connection::Sqlite(open_in_memory()?.into());
        let tables = TABLES.into_iter().filter(|name| *name != INDEX).map(|name| Self::of(&conn, name));
        tables.collect::<Result<_, Failure>>().map_err(|failure| OpenError::Database(failure.into()))
    }

    fn of(conn: &Connection, name: &'static str) -> Result<Self, Failure> {
        let sql = "SELECT name, type, pk FROM pragma_table_xinfo(?1) WHERE hidden = 0 ORDER BY cid";
        let found = conn.rows(sql, params![name], column)?;
        let mut key: Vec<(u32, usize)> =
            found.iter().enumerate().filter(|(_, (_, pk))| *pk > 0).map(|(at, (_, pk))| (*pk, at)).collect();
        key.sort_unstable();
        let mut key: Vec<usize> = key.into_iter().map(|(_, at)| at).collect();
        if let Some((_, column)) = KEYS.iter().find(|(table, _)| *table == name) {
            key = found.iter().position(|(found, _)| found.name == *column).into_iter().collect();
        }
        if key.is_empty() {
            return Err(Failure::Broken(format!("the table {name} has no key")));
        }
        let columns: Vec<Column> = found.into_iter().map(|(column, _)| column).collect();
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let values: Vec<String> = (1..=columns.len()).map(|number| format!("?{number}")).collect();
        let insert = format!("INSERT INTO {name} ({}) VALUES ({})", names.join(", "), values.join(", "));
        Ok(Self { name, columns, key, insert })
    }

    /// Whether the words of the rows are in the full-text index.
    pub(super) fn has_words(&self) -> bool {
        self.name == MESSAGES
    }

    /// The place of a column.
    pub(super) fn place(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|found| found.name == column)
    }

    /// The rows from the first one on, or after a key whose values are the first parameters. The last parameter is their
    /// maximum number.
    pub(super) fn select(&self, what: &str, after_key: bool) -> String {
        let key = self.key_columns();
        let numbers: Vec<String> = (1..=self.key.len()).map(|number| format!("?{number}")).collect();
        let (name, limit) = (self.name, if after_key { self.key.len() + 1 } else { 1 });
        let after = if after_key { format!("WHERE ({key}) > ({})", numbers.join(", ")) } else { String::new() };
        format!("SELECT {what} FROM {name} {after} ORDER BY {key} LIMIT ?{limit}")
    }

    /// All columns.
    pub(super) fn columns(&self) -> String {
        self.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// The size of the texts and bytes of a row, in bytes.
    pub(super) fn size(&self) -> String {
        let long = self.columns.iter().filter(|column| matches!(column.kind, Kind::Text | Kind::Blob));
        let sizes = long.map(|column| format!("COALESCE(octet_length({}), 0)", column.name));
        sizes.fold("0".to_owned(), |sum, size| format!("{sum} + {size}"))
    }

    fn key_columns(&self) -> String {
        self.key.iter().map(|at| self.columns[*at].name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

fn column(row: &Row<'_>) -> Result<(Column, u32), Failure> {
    let kind = match row.text("type")? {
        "INTEGER" => Kind::Int,
        "REAL" => Kind::Real,
        "TEXT" => Kind::Text,
        "BLOB" => Kind::Blob,
        other => return Err(Failure::Broken(format!("a column has the unknown type {other}"))),
    };
    Ok((Column { name: row.get("name")?, kind }, row.get("pk")?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The tables that a schema creates.
    fn created(schema: &str) -> BTreeSet<&str> {
        let tables = ["CREATE TABLE ", "CREATE VIRTUAL TABLE "];
        let lines = schema.lines().filter_map(|line| tables.iter().find_map(|begin| line.strip_prefix(begin)));
        lines.filter_map(|rest| rest.split([' ', '(']).next()).collect()
    }

    #[test]
    fn every_table_of_both_schemas_is_copied() {
        let listed = BTreeSet::from(TABLES);
        assert_eq!(listed.len(), TABLES.len(), "a table is listed twice");
        assert_eq!(created(include_str!("../sqlite/migrations/0001_schema.sql")), listed);
        let mut postgres = created(include_str!("../postgres/migrations/0001_schema.sql"));
        assert!(postgres.remove("belay_schema") && postgres.remove("writers"));
        assert_eq!(postgres, listed);
        assert!(STATE.iter().all(|table| listed.contains(table)));
    }

    #[test]
    fn each_table_has_a_key_and_its_computed_columns_are_left_out() {
        let tables = Table::all().expect("there is memory");
        let find = |name: &str| tables.iter().find(|table| table.name == name).expect("a table");
        assert_eq!(
            find("messages").select("at", true),
            "SELECT at FROM messages WHERE (thread, position) > (?1, ?2) ORDER BY thread, position LIMIT ?3"
        );
        assert_eq!(find("routines").select("name", false), "SELECT name FROM routines  ORDER BY id LIMIT ?1");
        assert!(find("routines").place("due_at").is_none() && find("routines").place("next_at").is_some());
        assert_eq!(find("pings").size(), "0");
    }
}
