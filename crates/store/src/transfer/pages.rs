//! Reads the rows of a table in pages of a bounded size, and writes a page.

use std::borrow::Cow;

use super::tables::Table;
use super::{TransferError, words};
use crate::sql::{Connection, Engine, Failure, Row, words_for};
use crate::value::{FromValue, Param, ToParam, Value, params};

/// The maximum number of rows of a page. 500: a commit for each is below a tenth of the time of its rows.
const PAGE_ROWS: u32 = 500;

/// The size of a page beyond which no further row belongs to it, in bytes. A page is held in memory.
const PAGE_BYTES: i64 = 4 * 1024 * 1024;

/// A row.
pub(super) struct Record {
    pub(super) values: Vec<Value>,
    /// The words of a message that is in the full-text index, with its row there.
    pub(super) words: Option<(i64, String)>,
    /// The number of texts in which NUL characters were replaced.
    pub(super) replaced: u64,
}

/// Reads the rows of a table, in the order of its key.
pub(super) struct Pages<'a> {
    conn: &'a Connection,
    table: &'a Table,
    /// The engine that gets the rows: its texts, and its words of messages.
    target: Engine,
    /// Whether the words of messages are needed.
    with_words: bool,
    /// The last key that was read.
    after: Option<Vec<Value>>,
}

impl<'a> Pages<'a> {
    /// The rows of the source, for an engine.
    pub(super) fn for_engine(target: Engine, conn: &'a Connection, table: &'a Table) -> Self {
        Self { conn, table, target, with_words: table.has_words(), after: None }
    }

    /// The rows of the target, as they are.
    pub(super) fn as_they_are(conn: &'a Connection, table: &'a Table) -> Self {
        Self { conn, table, target: conn.engine(), with_words: false, after: None }
    }

    /// The next page; `None`: there are no more rows.
    ///
    /// # Errors
    /// The database fails, or a row is damaged, which is named then.
    pub(super) fn next(&mut self) -> Result<Option<Vec<Record>>, TransferError> {
        let broken = |failure: Failure| TransferError::Read { table: self.table.name, detail: words(&failure) };
        let rows = self.page_rows().map_err(broken)?;
        if rows == 0 {
            return Ok(None);
        }
        let mut page: Vec<Record> = Vec::new();
        let mut damaged = None;
        let sql = self.table.select(&self.table.columns(), self.after.is_some());
        let read = self.conn.each(&sql, self.parameters(rows), |row| match self.record(row) {
            Ok(record) => {
                page.push(record);
                Ok(true)
            }
            Err(failure) => {
                damaged = Some(TransferError::Row {
                    table: self.table.name,
                    key: self.key_of(row, page.last()),
                    detail: words(&failure),
                });
                Ok(false)
            }
        });
        read.map_err(broken)?;
        if let Some(damaged) = damaged {
            return Err(damaged);
        }
        let Some(last) = page.last() else { return Ok(None) };
        self.after = Some(key(self.table, &last.values));
        Ok(Some(page))
    }

    /// The number of rows of the next page, by their sizes.
    fn page_rows(&self) -> Result<u32, Failure> {
        let (mut rows, mut bytes) = (0, 0);
        let sql = self.table.select(&self.table.size(), self.after.is_some());
        self.conn.each(&sql, self.parameters(PAGE_ROWS), |row| {
            rows += 1;
            bytes += row.get::<_, i64>(0)?;
            Ok(bytes < PAGE_BYTES)
        })?;
        Ok(rows)
    }

    fn parameters(&self, rows: u32) -> Vec<Param<'_>> {
        let after = self.after.iter().flatten().map(ToParam::to_param);
        after.chain([Param::from(rows)]).collect()
    }

    fn record(&self, row: &Row<'_>) -> Result<Record, Failure> {
        let mut replaced = 0;
        let mut values = Vec::with_capacity(self.table.columns.len());
        for (at, column) in self.table.columns.iter().enumerate() {
            let found = row.get_ref(at);
            let found = found.map_err(|failure| Failure::Broken(format!("{}: {failure}", column.name)))?;
            values.push(match Value::from_value(found) {
                Some(Value::Text(text)) if self.target == Engine::Postgres && text.contains('\0') => {
                    replaced += 1;
                    Value::Text(Cow::Owned(text.replace('\0', "\u{fffd}")))
                }
                // A parameter without a value has the type of its column.
                Some(Value::Null(_)) | None => Value::Null(column.kind),
                Some(value) => value,
            });
        }
        let index_row = self.table.place("index_row").filter(|_| self.with_words);
        let words = match index_row.and_then(|at| values.get(at)) {
            Some(Value::Int(number)) => words_for(self.target, row)?.map(|words| (*number, words)),
            _ => None,
        };
        Ok(Record { values, words, replaced })
    }

    /// The key of a damaged row, for people; if it cannot be read itself, the one before.
    fn key_of(&self, row: &Row<'_>, before: Option<&Record>) -> String {
        let values = self.table.key.iter().map(|at| row.get::<_, Value>(*at)).collect::<Result<Vec<_>, _>>();
        match (values, before.map(|record| key(self.table, &record.values)).or_else(|| self.after.clone())) {
            (Ok(values), _) => shown(&values),
            (Err(_), Some(before)) => format!("after {}", shown(&before)),
            (Err(_), None) => "the first".to_owned(),
        }
    }
}

fn key(table: &Table, values: &[Value]) -> Vec<Value> {
    table.key.iter().map(|at| values[*at].clone()).collect()
}

/// Writes a page in one transaction. Returns the number of rows of the full-text index.
///
/// # Errors
/// The database fails, or refuses a row, which is named then. Nothing of the page is written.
pub(super) fn write(conn: &Connection, table: &Table, page: &[Record]) -> Result<u64, TransferError> {
    let write = || {
        conn.begin()?;
        for record in page {
            insert(table, record, |sql, params| conn.post(sql, params))?;
        }
        conn.commit()?.or_fail()
    };
    match write() {
        Ok(()) => Ok(page.iter().filter(|record| record.words.is_some()).count() as u64),
        Err(failure) => {
            let _ = conn.rollback(); // the failure says more
            Err(refused_row(conn, table, page)
                .unwrap_or(TransferError::Write { table: table.name, detail: words(&failure) }))
        }
    }
}

/// Finds the row of a page that the database refuses: statements that are sent ahead do not tell.
fn refused_row(conn: &Connection, table: &Table, page: &[Record]) -> Option<TransferError> {
    conn.begin().ok()?;
    let refused = page.iter().find_map(|record| {
        let failure = insert(table, record, |sql, params| conn.execute(sql, params).map(|_| ())).err()?;
        let key = shown(&key(table, &record.values));
        Some(TransferError::Row { table: table.name, key, detail: words(&failure) })
    });
    let _ = conn.rollback(); // the found row says more
    refused
}

fn insert(
    table: &Table,
    record: &Record,
    run: impl Fn(&str, &[Param<'_>]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    run(&table.insert, &record.values)?;
    match &record.words {
        Some((row, words)) => run("INSERT INTO message_index (rowid, text) VALUES (?1, ?2)", &params![row, words]),
        None => Ok(()),
    }
}

/// A key for people.
fn shown(key: &[Value]) -> String {
    const LONGEST: usize = 80;
    let values = key.iter().map(|value| match value {
        Param::Null(_) => "none".to_owned(),
        Param::Int(int) => int.to_string(),
        Param::Real(real) => real.to_string(),
        Param::Text(text) if text.len() > LONGEST => format!("{:?}…", &text[..text.floor_char_boundary(LONGEST)]),
        Param::Text(text) => format!("{text:?}"),
        Param::Blob(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        Param::Id(id) => id.simple().to_string(),
    });
    values.collect::<Vec<_>>().join(", ")
}
