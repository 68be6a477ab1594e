//! The columns of tables: cells that cover several rows or columns leave empty cells in the places that they cover.

use std::collections::BTreeMap;

use html5ever::tokenizer::Tag;

use super::allowance::Allowance;
use super::elements::{Gap, attribute, integer};

/// Deepest nesting of tables whose columns are counted.
const MAX_DEPTH: usize = 64;

/// Most columns and rows of a cell. HTML standard, "attributes common to td and th elements".
const MAX_COLUMNS: usize = 1000;
const MAX_ROWS: usize = 65_534;

/// Bytes of an empty cell.
const EMPTY_CELL: usize = " | ".len();

/// The open tables.
#[derive(Default)]
pub(super) struct Tables {
    open: Vec<Table>,
    /// Number of open tables whose columns are not counted.
    deeper: usize,
}

#[derive(Default)]
struct Table {
    row: usize,
    /// The first column behind the cells of the row.
    next: usize,
    /// Columns that the last cell covers beside its first one.
    beside: usize,
    /// The column of the open cell.
    cell: Option<usize>,
    /// The column of the last cell of the row that has text.
    written: Option<usize>,
    /// Whether the open cell has more than paragraphs, so that its end is the end of a block.
    has_blocks: bool,
    /// Cells that cover later rows, by their first column.
    spans: BTreeMap<usize, Span>,
}

struct Span {
    end_column: usize,
    end_row: usize,
}

impl Tables {
    pub(super) fn open(&mut self) {
        // A table within a cell is the text of the cell.
        if let Some(table) = self.innermost() {
            table.written = table.cell.or(table.written);
        }
        if self.open.len() < MAX_DEPTH {
            self.open.push(Table::default());
        } else {
            self.deeper += 1;
        }
    }

    pub(super) fn close(&mut self) {
        match self.deeper.checked_sub(1) {
            Some(deeper) => self.deeper = deeper,
            None => drop(self.open.pop()),
        }
    }

    /// Begins a group of rows. No cell reaches over its end.
    pub(super) fn group(&mut self) {
        if let Some(table) = self.innermost() {
            table.spans.clear();
        }
    }

    pub(super) fn row(&mut self) {
        if let Some(table) = self.innermost() {
            let row = table.row + 1;
            *table = Table { row, spans: std::mem::take(&mut table.spans), ..Table::default() };
        }
    }

    /// Begins a cell.
    pub(super) fn cell(&mut self, tag: &Tag, allowance: &mut Allowance) {
        let Some(table) = self.innermost() else { return };
        let span = |name| attribute(tag, name).and_then(integer).and_then(|span| usize::try_from(span).ok());
        let columns = span("colspan").unwrap_or(1).clamp(1, MAX_COLUMNS);
        // A `rowspan` of 0 reaches to the end of the group.
        let rows = span("rowspan").map_or(1, |rows| if rows == 0 { MAX_ROWS } else { rows.min(MAX_ROWS) });
        let column = table.free_column(allowance);
        if rows > 1 {
            table.spans.insert(column, Span { end_column: column + columns, end_row: table.row + rows });
        }
        table.cell = Some(column);
        table.next = column + 1;
        table.beside = columns - 1;
        table.has_blocks = false;
    }

    /// Whether the open cell has no text yet.
    pub(super) fn is_at_start_of_cell(&mut self) -> bool {
        self.innermost().is_some_and(|table| table.cell.is_some() && table.cell != table.written)
    }

    /// Notes that the open cell has blocks other than paragraphs.
    pub(super) fn block(&mut self) {
        if let Some(table) = self.innermost() {
            table.has_blocks = true;
        }
    }

    /// Whether the open cell ends as a part of its row, whatever white space its paragraphs have.
    pub(super) fn is_end_in_row(&mut self) -> bool {
        self.innermost().is_some_and(|table| table.cell.is_some() && table.written.is_some() && !table.has_blocks)
    }

    /// The number of separators before the first words of a cell; `None` if the white space stays as it is.
    pub(super) fn separators(&mut self, gap: Gap) -> Option<usize> {
        let table = self.innermost()?;
        let cell = table.cell.filter(|_| table.cell != table.written)?;
        match table.written.replace(cell) {
            None => Some(cell),
            Some(before) => (gap <= Gap::Cell).then(|| cell - before),
        }
    }

    fn innermost(&mut self) -> Option<&mut Table> {
        if self.deeper > 0 { None } else { self.open.last_mut() }
    }
}

impl Table {
    /// The next column that no other cell covers. Each covered place counts as an empty cell.
    fn free_column(&mut self, allowance: &mut Allowance) -> usize {
        let mut column = self.next + allowance.take(std::mem::take(&mut self.beside), EMPTY_CELL);
        while let Some((&first, span)) = self.spans.range(..=column).next_back() {
            if span.end_row <= self.row {
                self.spans.remove(&first);
                continue;
            }
            let covered = span.end_column.saturating_sub(column);
            let taken = allowance.take(covered, EMPTY_CELL);
            column += taken;
            if taken < covered || covered == 0 {
                break;
            }
        }
        column
    }
}
