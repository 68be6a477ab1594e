//! Makes a table as narrow as the terminal: it leaves columns out, and cuts the others.

use super::{Cell, MAX_COLUMN};

/// Columns between two cells.
const GAP: usize = 2;

/// How a column of a table gives way on a narrow terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The width that the column keeps, if its cells are as wide.
    least: usize,
    /// Its turn to be left out: the highest is the first. 0: it always stays.
    turn: u8,
}

impl Column {
    /// A column that stays whole.
    pub const WHOLE: Self = Self { least: usize::MAX, turn: 0 };

    /// A column that is cut, but keeps this width.
    pub const fn cut(least: usize) -> Self {
        Self { least, turn: 0 }
    }

    /// A column that stays whole until it is left out. `turn`: from 1; the column with the highest one goes first.
    pub const fn optional(turn: u8) -> Self {
        Self { least: usize::MAX, turn }
    }
}

/// The width of a column of names in lines that are printed one by one. Each line has the same columns, so the terminal
/// decides, not the names. `usual`: its width where the columns just fit. `spare`: what the terminal has beyond these.
/// It grows up to the widest cell for which a table widens a column.
pub fn widened(usual: usize, spare: usize) -> usize {
    usual.saturating_add(spare).min(MAX_COLUMN.max(usual))
}

/// The rows, fitted to a terminal of this width. Columns are left out by their turn until the least widths of the
/// others fit. Then the widest column that may be cut gives way first. Before the last column, it is at most as wide as
/// the widest cell for which a table widens a column. A row of one cell is a remark, which has no columns.
///
/// A terminal that is narrower than the columns that stay whole cuts these too, down to one character.
pub fn fitted(rows: &[Vec<Cell>], columns: &[Column], width: usize) -> Vec<Vec<Cell>> {
    let is_remark = |row: &&Vec<Cell>| row.len() == 1;
    let natural = |at: usize| {
        rows.iter().filter(|row| !is_remark(row)).filter_map(|row| row.get(at)).map(Cell::width).max().unwrap_or(0)
    };
    // A cell that does not widen its column would move the rest of its row. Behind the last one there is no rest.
    let most = |at: usize, column: &Column| {
        if at + 1 < columns.len() { natural(at).min(MAX_COLUMN.max(column.least)) } else { natural(at) }
    };
    // The place of each column, its width, and its least width.
    let mut kept: Vec<(usize, usize, usize)> =
        columns.iter().enumerate().map(|(at, column)| (at, most(at, column), natural(at).min(column.least))).collect();
    let gaps = |kept: &[(usize, usize, usize)]| GAP * kept.len().saturating_sub(1);
    while kept.iter().map(|(_, _, least)| least).sum::<usize>() + gaps(&kept) > width {
        let next = kept.iter().map(|(at, ..)| *at).filter(|at| columns[*at].turn > 0);
        let Some(next) = next.max_by_key(|at| columns[*at].turn) else { break };
        kept.retain(|(at, ..)| *at != next);
    }
    let over =
        |kept: &[(usize, usize, usize)]| kept.iter().map(|(_, wide, _)| wide).sum::<usize>() + gaps(kept) > width;
    // Columns that may be cut go down to one character before one that stays whole is cut.
    let floors: [fn(&Column, usize) -> usize; 3] =
        [|_, least| least, |column, least| if column.least == usize::MAX { least } else { 1 }, |_, _| 1];
    for floor_of in floors {
        while over(&kept) {
            let may_give = kept.iter_mut().filter(|(at, wide, least)| *wide > floor_of(&columns[*at], *least));
            let Some((_, wide, _)) = may_give.max_by_key(|(_, wide, _)| *wide) else { break };
            *wide -= 1;
        }
    }
    let cells =
        |row: &Vec<Cell>| kept.iter().filter_map(|(at, wide, _)| Some(row.get(*at)?.clone().at_most(*wide))).collect();
    rows.iter().map(|row| if is_remark(&row) { row.clone() } else { cells(row) }).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::super::Output;
    use super::*;

    fn lines(width: usize) -> Vec<String> {
        let row = |cells: [&str; 4]| cells.map(Cell::from).to_vec();
        let rows = [
            row(["ID", "WORDS", "PLACE", "COST"]),
            row(["0199e3a0", "one two three", "garden", "$1.00"]),
            vec!["and 7 more".into()],
        ];
        let columns = [Column::WHOLE, Column::cut(6), Column::optional(2), Column::optional(1)];
        Output::plain(&OnceLock::new()).aligned(&fitted(&rows, &columns, width))
    }

    #[test]
    fn a_table_fits_the_terminal_by_cut_and_left_out_columns() {
        for (width, expected) in [
            (80, ["ID        WORDS          PLACE   COST", "0199e3a0  one two three  garden  $1.00", "and 7 more"]),
            (37, ["ID        WORDS         PLACE   COST", "0199e3a0  one two thr…  garden  $1.00", "and 7 more"]),
            (30, ["ID        WORDS          COST", "0199e3a0  one two three  $1.00", "and 7 more"]),
            (23, ["ID        WORDS   COST", "0199e3a0  one t…  $1.00", "and 7 more"]),
            (16, ["ID        WORDS", "0199e3a0  one t…", "and 7 more"]),
            (11, ["ID        …", "0199e3a0  …", "and 7 more"]),
            (9, ["ID      …", "0199e…  …", "and 7 more"]),
            (0, ["…  …", "…  …", "and 7 more"]),
        ] {
            let lines = lines(width);
            assert_eq!(lines, expected, "{width}");
            let table = &lines[..2];
            assert!(width < 4 || table.iter().all(|line| line.chars().count() <= width), "{width}: {lines:?}");
        }
    }

    #[test]
    fn a_column_of_names_grows_with_the_terminal_up_to_a_bound() {
        for (usual, spare, expected) in
            [(16, 0, 16), (16, 10, 26), (16, 48, MAX_COLUMN), (16, usize::MAX, MAX_COLUMN), (70, 9, 70)]
        {
            assert_eq!(widened(usual, spare), expected, "{usual} {spare}");
        }
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let rows = [vec![Cell::from("漢字漢字"), Cell::from("x")]];
        let fitted = fitted(&rows, &[Column::cut(1), Column::WHOLE], 8);
        assert_eq!(Output::plain(&OnceLock::new()).aligned(&fitted), ["漢字…  x"]);
    }
}
