//! Lays out tables: aligned columns that wrap within their cells, or, if the terminal is too narrow, one block of lines
//! for each row.

use pulldown_cmark::Alignment;

use crate::span::{Span, Style, line_width};
use crate::wrap::wrapped;

/// Fewest columns of the terminal for a column of a table. Below it, rows are shown as blocks.
const COLUMN_MIN: usize = 4;

/// The columns between two cells.
const GAP: usize = 3;

/// A table, cell by cell.
pub(super) struct Table {
    alignments: Vec<Alignment>,
    /// The first row is the head.
    rows: Vec<Vec<Vec<Span>>>,
    row: Vec<Vec<Span>>,
}

impl Table {
    pub(super) fn new(alignments: Vec<Alignment>) -> Self {
        Self { alignments, rows: Vec::new(), row: Vec::new() }
    }

    pub(super) fn cell(&mut self, cell: Vec<Span>) {
        self.row.push(cell);
    }

    pub(super) fn end_row(&mut self) {
        let mut row = std::mem::take(&mut self.row);
        row.resize(self.alignments.len(), Vec::new());
        self.rows.push(row);
    }

    /// The lines of the table, none wider than `width`.
    pub(super) fn lines(mut self, width: usize) -> Vec<Vec<Span>> {
        for span in self.rows.iter_mut().take(1).flatten().flatten() {
            span.style.bold = true;
        }
        let columns = self.alignments.len();
        let gaps = GAP * columns.saturating_sub(1);
        if columns == 0 || width < gaps + COLUMN_MIN * columns {
            return self.blocks(width);
        }
        let natural = |column: usize| self.rows.iter().map(|row| line_width(&row[column])).max().unwrap_or(0).max(1);
        let widths = shared(&(0..columns).map(natural).collect::<Vec<_>>(), width - gaps);
        let mut lines = Vec::new();
        for (at, row) in self.rows.iter().enumerate() {
            lines.extend(self.row_lines(row, &widths));
            if at == 0 {
                lines.push(rule(&widths));
            }
        }
        lines
    }

    fn row_lines(&self, row: &[Vec<Span>], widths: &[usize]) -> Vec<Vec<Span>> {
        let cells: Vec<Vec<Vec<Span>>> = row.iter().zip(widths).map(|(cell, width)| wrapped(cell, *width)).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let line = |at: usize| {
            let mut line = Vec::new();
            for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
                if column > 0 {
                    line.push(Span::dim(" │ "));
                }
                let text = cell.get(at).cloned().unwrap_or_default();
                let free = width.saturating_sub(line_width(&text));
                let before = match self.alignments[column] {
                    Alignment::Right => free,
                    Alignment::Center => free / 2,
                    Alignment::None | Alignment::Left => 0,
                };
                line.push(Span::plain(" ".repeat(before)));
                line.extend(text);
                line.push(Span::plain(" ".repeat(free - before)));
            }
            line
        };
        (0..height).map(line).collect()
    }

    /// One block of lines for each row: each cell after the name of its column.
    fn blocks(self, width: usize) -> Vec<Vec<Span>> {
        let mut rows = self.rows.into_iter();
        let Some(head) = rows.next() else { return Vec::new() };
        let mut lines = Vec::new();
        if rows.len() == 0 {
            return head.iter().flat_map(|cell| wrapped(cell, width)).collect();
        }
        for (at, row) in rows.enumerate() {
            if at > 0 {
                lines.push(vec![Span::plain("")]);
            }
            for (name, cell) in head.iter().zip(row) {
                let mut text = name.clone();
                text.push(Span::new(": ", Style { bold: true, ..Style::default() }));
                text.extend(cell);
                lines.extend(wrapped(&text, width));
            }
        }
        lines
    }
}

fn rule(widths: &[usize]) -> Vec<Span> {
    let parts: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
    vec![Span::dim(parts.join("─┼─"))]
}

/// Divides the width among columns: narrow ones get what they need, the others equal shares of the rest.
fn shared(natural: &[usize], width: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..natural.len()).collect();
    order.sort_by_key(|column| natural[*column]);
    let (mut widths, mut left) = (vec![0; natural.len()], width);
    for (done, column) in order.into_iter().enumerate() {
        let share = left / (natural.len() - done);
        widths[column] = natural[column].min(share);
        left -= widths[column];
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_columns_get_what_they_need() {
        for (natural, width, expected) in
            [(vec![3, 5], 20, vec![3, 5]), (vec![3, 50], 20, vec![3, 17]), (vec![50, 3, 40], 23, vec![10, 3, 10])]
        {
            assert_eq!(shared(&natural, width), expected, "{natural:?} {width}");
        }
    }
}
