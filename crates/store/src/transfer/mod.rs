//! Migration of a store from one engine to the other, while no daemon uses either.
//!
//! The target must be without data. It gets a mark first, with which [`SqlStore::open`](crate::SqlStore::open) and
//! [`SqlStore::connect`](crate::SqlStore::connect) refuse it. Then the rows are copied in pages, each in a transaction of its
//! own; then they are read from the target and compared with the source by their number and their digest; then the mark is
//! removed. A migration that was interrupted leaves the mark; the next one empties the target and begins anew.
//!
//! Values are copied as they are. The full-text index is built from the messages. Files of messages and the key of the vault
//! are not in a database.
//!
//! Everything here blocks, and must not be called in a task. Reading order: here → `tables` → `sides` → `pages` → `digest`.

mod digest;
mod pages;
mod sides;
mod tables;

use std::collections::BTreeMap;

use self::digest::Sum;
use self::pages::Pages;
use self::sides::Side;
use self::tables::{INDEX, Table};
use crate::config::StoreUrl;
use crate::error::OpenError;
use crate::sql::Failure;

/// The error of a migration. The source is unchanged. After [`Row`](Self::Row), [`Read`](Self::Read), [`Write`](Self::Write)
/// and [`Database`](Self::Database) the target may be unfinished; the next migration into it begins anew.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The source cannot be opened.
    #[error("the source cannot be opened: {0}")]
    Source(#[source] OpenError),
    /// The target cannot be opened.
    #[error("the target cannot be opened: {0}")]
    Target(#[source] OpenError),
    /// There is no store at the source.
    #[error("there is no store at {0}, from which to migrate: check the address")]
    NoSource(String),
    /// The source has an earlier schema.
    #[error(
        "the source has schema {found}, and this belay migrates schema {known}: start and end this belay once with the source"
    )]
    Outdated {
        /// The schema of the source.
        found: u32,
        /// The schema of this program.
        known: u32,
    },
    /// One of the stores is in memory.
    #[error("a store in memory has nothing to migrate, and keeps nothing: use sqlite:///path or postgres://…")]
    Memory,
    /// Source and target are the same.
    #[error("the source and the target are the same store")]
    Same,
    /// The target has data.
    #[error("the target is not empty ({}): use a new file, or another schema (schema=NAME)", .0.join(", "))]
    NotEmpty(Vec<String>),
    /// A row is damaged, or the target cannot store it.
    #[error(
        "the table {table} has a row that cannot be migrated, with the key {key}: {detail}. Repair or delete that row in \
         the source, and migrate again"
    )]
    Row {
        /// The table.
        table: &'static str,
        /// The values of its key.
        key: String,
        /// The problem.
        detail: String,
    },
    /// A table could not be read.
    #[error("the table {table} could not be read: {detail}. Migrate again: the target is emptied first")]
    Read {
        /// The table.
        table: &'static str,
        /// The problem.
        detail: String,
    },
    /// Rows could not be written.
    #[error("rows of the table {table} could not be written: {detail}. Migrate again: the target is emptied first")]
    Write {
        /// The table.
        table: &'static str,
        /// The problem.
        detail: String,
    },
    /// A database has failed.
    #[error("{0}. Migrate again: an unfinished target is emptied first")]
    Database(String),
}

/// The work that a migration does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It copies rows.
    Copy,
    /// It reads the rows of the target, and compares them.
    Verify,
}

/// The progress of a migration, after each page of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The work.
    pub phase: Phase,
    /// The table.
    pub table: &'static str,
    /// The rows of all tables so far, in this phase.
    pub rows: u64,
    /// The rows of all tables.
    pub all: u64,
}

/// A migrated table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigratedTable {
    /// Its name.
    pub name: &'static str,
    /// The number of rows that were read from the source.
    pub rows: u64,
    /// The digest of these rows: 64 hexadecimal digits. `None` for the full-text index, whose form differs between the engines.
    pub digest: Option<String>,
    /// The number of rows that were read from the target afterwards.
    pub target_rows: u64,
    /// The digest of these rows.
    pub target_digest: Option<String>,
    /// The number of texts in which U+FFFD has replaced the character NUL, which PostgreSQL does not have.
    pub replaced_nul: u64,
}

impl MigratedTable {
    /// Whether the target has the same rows.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.rows == self.target_rows && self.digest == self.target_digest
    }
}

/// The result of a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// All tables.
    pub tables: Vec<MigratedTable>,
    /// Whether the target was emptied first, because an earlier migration into it was not finished.
    pub restarted: bool,
}

impl Migrated {
    /// Whether all tables are equal. If not, the target keeps its mark and is refused.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.tables.iter().all(MigratedTable::is_equal)
    }
}

/// Copies all rows of a store to another one without data, and verifies them.
///
/// # Errors
/// See [`TransferError`]. A difference that the verification finds is no error, but a part of the result.
pub fn migrate(
    source: &StoreUrl,
    target: &StoreUrl,
    progress: &mut dyn FnMut(Progress),
) -> Result<Migrated, TransferError> {
    if source == target {
        return Err(TransferError::Same);
    }
    let tables = Table::all().map_err(TransferError::Target)?;
    let source = sides::source(source)?;
    let target = sides::target(target)?;
    let restarted = target.is_unfinished()?;
    let filled = if restarted { Vec::new() } else { target.filled(&tables)? };
    if !filled.is_empty() {
        return Err(TransferError::NotEmpty(
            filled.iter().map(|(table, rows)| format!("{table}: {rows} rows")).collect(),
        ));
    }
    let all = tables.iter().map(|table| source.count(table.name)).sum::<Result<u64, _>>()?;
    target.begin()?;

    let mut report = Report { progress, all, rows: 0 };
    let (copied, words) = copy(&source, &target, &tables, &mut report)?;
    target.continue_after(&source.numbers()?)?;
    let mut migrated = Migrated { tables: verify(&target, &tables, &copied, &mut report)?, restarted };
    migrated.tables.push(MigratedTable {
        name: INDEX,
        rows: words,
        digest: None,
        target_rows: target.count(INDEX)?,
        target_digest: None,
        replaced_nul: 0,
    });
    if migrated.is_equal() {
        target.complete()?;
    }
    Ok(migrated)
}

/// The words of a failure. A migration does not connect again: the lock of the store would be lost in between.
fn words(failure: &Failure) -> String {
    let text = failure.to_string();
    text.trim_end_matches("Belay connects again").trim_end_matches([' ', ';', ':']).to_owned()
}

/// Reports the progress.
struct Report<'a> {
    progress: &'a mut dyn FnMut(Progress),
    rows: u64,
    all: u64,
}

impl Report<'_> {
    fn add(&mut self, phase: Phase, table: &'static str, rows: usize) {
        self.rows += rows as u64;
        (self.progress)(Progress { phase, table, rows: self.rows, all: self.all });
    }
}

/// The rows of a table that were read from the source.
#[derive(Default)]
struct Copied {
    sum: Sum,
    replaced: u64,
}

/// Copies all tables. Returns their rows, and the number of rows of the full-text index.
fn copy(
    source: &Side,
    target: &Side,
    tables: &[Table],
    report: &mut Report<'_>,
) -> Result<(BTreeMap<&'static str, Copied>, u64), TransferError> {
    let (mut all, mut words) = (BTreeMap::new(), 0);
    for table in tables {
        let copied: &mut Copied = all.entry(table.name).or_default();
        let mut pages = Pages::for_engine(target.conn.engine(), &source.conn, table);
        while let Some(page) = pages.next()? {
            for record in &page {
                copied.sum.add(&record.values);
                copied.replaced += record.replaced;
            }
            words += pages::write(&target.conn, table, &page)?;
            report.add(Phase::Copy, table.name, page.len());
        }
    }
    Ok((all, words))
}

/// Reads all tables of the target, and compares them with what was copied.
fn verify(
    target: &Side,
    tables: &[Table],
    copied: &BTreeMap<&'static str, Copied>,
    report: &mut Report<'_>,
) -> Result<Vec<MigratedTable>, TransferError> {
    report.rows = 0;
    let nothing = Copied::default();
    let mut compared = Vec::with_capacity(tables.len() + 1);
    for table in tables {
        let mut found = Sum::default();
        let mut pages = Pages::as_they_are(&target.conn, table);
        while let Some(page) = pages.next()? {
            page.iter().for_each(|record| found.add(&record.values));
            report.add(Phase::Verify, table.name, page.len());
        }
        let copied = copied.get(table.name).unwrap_or(&nothing);
        compared.push(MigratedTable {
            name: table.name,
            rows: copied.sum.rows,
            digest: Some(copied.sum.hex()),
            target_rows: found.rows,
            target_digest: Some(found.hex()),
            replaced_nul: copied.replaced,
        });
    }
    Ok(compared)
}
