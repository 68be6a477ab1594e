//! Prints results on stdout and notes on stderr: aligned and coloured for people, plain for programs.

mod columns;

use std::io::{self, BufWriter, ErrorKind, IsTerminal, StdoutLock, Write};
use std::sync::OnceLock;

pub use belay_terminal::is_folded;
use belay_terminal::{LiveArea, Look, question};

use crate::environment::Environment;

pub use self::columns::{Column, fitted, widened};

/// Columns of a terminal that does not say how many it has.
const USUAL_COLUMNS: usize = 80;

/// The output for results.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    /// Whether stdout is a terminal, which control characters would affect.
    terminal: bool,
    colour: bool,
    /// The first write error, for the end of the process.
    write_error: &'a OnceLock<io::Error>,
}

/// Colours by meaning: ANSI "Select Graphic Rendition" codes, so that the terminal's own palette applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Default colour.
    Plain,
    /// Good.
    Good,
    /// Needs attention.
    Warn,
    /// Bad.
    Bad,
    /// Less important.
    Dim,
}

impl<'a> Output<'a> {
    /// The standard output of this process. No colours with `NO_COLOR` (<https://no-color.org>). The first write error
    /// is kept in `write_error`.
    pub fn stdout(env: &Environment, write_error: &'a OnceLock<io::Error>) -> Self {
        let terminal = io::stdout().is_terminal();
        Self { terminal, colour: terminal && env.raw("NO_COLOR").is_none(), write_error }
    }

    /// An output that is no terminal.
    pub fn plain(write_error: &'a OnceLock<io::Error>) -> Self {
        Self { terminal: false, colour: false, write_error }
    }

    fn write(self, write: impl FnOnce(&mut BufWriter<StdoutLock<'static>>) -> io::Result<()>) {
        let mut out = BufWriter::new(io::stdout().lock());
        match write(&mut out).and_then(|()| out.flush()) {
            Ok(()) => {}
            // A reader that has closed the pipe (`| head`) is no failure.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(error) => {
                let _ = self.write_error.set(error); // only the first error is reported
            }
        }
        // Drops the unwritten rest, so that it is not retried.
        let _ = out.into_parts();
    }

    /// Prints a line. On a terminal, control characters of model output are escaped.
    pub fn line(self, text: &str) {
        let safe = if self.terminal { escaped(text) } else { text.to_owned() };
        self.write(|out| writeln!(out, "{safe}"));
    }

    /// Prints a part of a text, without a line end.
    pub fn piece(self, text: &str) {
        let safe = if self.terminal { belay_text::escaped_piece(text).into_owned() } else { text.to_owned() };
        self.write(|out| write!(out, "{safe}"));
    }

    /// Whether a person reads the output.
    pub fn is_terminal(self) -> bool {
        self.terminal
    }

    /// Whether the output has colours.
    pub fn has_colour(self) -> bool {
        self.colour
    }

    /// Replaces the line that was shown last; for terminals. A text longer than 79 characters is cut: a line that wraps
    /// could not be replaced.
    pub fn again(self, text: &str) {
        let line: String = escaped(text).chars().filter(|c| *c != '\n').take(79).collect();
        self.write(|out| write!(out, "\r\x1b[2K{line}"));
    }

    /// Prints many lines, with few writes.
    pub fn lines(self, lines: impl Iterator<Item = String>) {
        self.write(|out| {
            for line in lines {
                let safe = if self.terminal { escaped(&line) } else { line };
                writeln!(out, "{safe}")?;
            }
            Ok(())
        });
    }

    /// Prints a JSON value, indented on a terminal.
    pub fn json(self, value: &serde_json::Value) {
        let text = if self.terminal { format!("{value:#}") } else { value.to_string() };
        self.write(|out| writeln!(out, "{text}"));
    }

    /// Prints a table with aligned columns; the last column is not padded.
    pub fn table(self, rows: &[Vec<Cell>]) {
        self.write(|out| self.aligned(rows).iter().try_for_each(|line| writeln!(out, "{line}")));
    }

    /// The width of the terminal in columns; `None`: a program reads the output, and nothing of it may be cut.
    pub fn columns(self) -> Option<usize> {
        let asked = || rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_col));
        self.terminal.then(asked).map(|columns| if columns == 0 { USUAL_COLUMNS } else { columns })
    }

    /// Prints a table that [fits](fitted) the terminal; where no terminal reads it, the whole table.
    pub fn fitted_table(self, rows: &[Vec<Cell>], columns: &[Column]) {
        match self.columns() {
            Some(width) => self.table(&fitted(rows, columns, width)),
            None => self.table(rows),
        }
    }

    /// Prints tables in the place of those that were drawn before; where no terminal reads them, below those.
    pub fn redraw(self, area: &mut LiveArea, tables: &[Vec<Vec<Cell>>]) {
        let Some(columns) = self.columns() else {
            return tables.iter().for_each(|rows| self.table(rows));
        };
        let erased = area.erase(columns);
        let drawn = area.draw(&tables.iter().flat_map(|rows| self.aligned(rows)).collect::<Vec<_>>());
        self.write(|out| write!(out, "{erased}{drawn}"));
    }

    /// The lines of a table.
    pub fn aligned(self, rows: &[Vec<Cell>]) -> Vec<String> {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        // A row of one cell is a remark, which widens no column.
        let columned = || rows.iter().filter(|row| row.len() > 1);
        let cells = |column: usize| columned().filter_map(move |row| row.get(column)).map(Cell::width);
        let width = |column: usize| cells(column).filter(|width| *width <= MAX_COLUMN).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<Cell>| {
            let mut line = String::new();
            for (at, cell) in row.iter().enumerate() {
                line.push_str(&self.paint(&cell.text, cell.tone));
                if at + 1 < row.len() {
                    line.push_str(&" ".repeat(widths[at].saturating_sub(cell.width()) + 2));
                }
            }
            line
        };
        rows.iter().map(line).collect()
    }

    fn paint(self, text: &str, tone: Tone) -> String {
        let text = escaped(text);
        let code = match tone {
            Tone::Plain => return text,
            Tone::Good => "32",
            Tone::Warn => "33",
            Tone::Bad => "31",
            Tone::Dim => "2",
        };
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text }
    }
}

/// Widest cell that widens its column. 64: the longest name of a tool for models. A longer one moves only its own row,
/// and on a terminal it is cut.
pub const MAX_COLUMN: usize = 64;

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A cell of that tone.
    pub fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: escaped(&text.into()).replace(['\n', '\t'], " "), tone }
    }

    /// A cell that shows each character of a text by which a person decides.
    pub fn exact(text: &str) -> Self {
        Self { text: belay_text::escaped_line(text), tone: Tone::Plain }
    }

    /// The cell, padded to this width in columns.
    pub fn at_least(mut self, width: usize) -> Self {
        self.text.extend(std::iter::repeat_n(' ', width.saturating_sub(self.width())));
        self
    }

    /// The cell, cut to this width. A cut text ends with "…"; spaces at its end are no text.
    pub fn at_most(mut self, width: usize) -> Self {
        if self.width() <= width {
            return self;
        }
        self.text = belay_terminal::cut(self.text.trim_end(), width);
        self.at_least(width)
    }

    fn width(&self) -> usize {
        belay_terminal::width(&self.text)
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Tone::Plain)
    }
}

/// Escapes characters that control a terminal or are hidden.
fn escaped(text: &str) -> String {
    belay_text::escaped(text).into_owned()
}

/// Shows an approval request on stderr; elsewhere than on a terminal as it is. `more`: how a person sees the rest of a long
/// one, of which the beginning is shown then.
pub fn ask(text: &str, colour: bool, more: Option<&str>) {
    let shown = match error_columns() {
        Some(width) => question(text, Look { width, colour }, more).join("\n"),
        None => escaped(text),
    };
    let _ = std::io::stderr().lock().write_all(format!("{shown}\n").as_bytes()); // on failure, nobody else can be told
}

/// The width of the terminal that standard error is, if it is one.
fn error_columns() -> Option<usize> {
    let asked = || rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    io::stderr().is_terminal().then(asked).map(|columns| if columns == 0 { USUAL_COLUMNS } else { columns })
}

/// Prints a note for people on stderr.
pub fn note(text: &str) {
    print_error(&format!("belay: {text}"));
}

/// Prints a line on stderr. It may contain text of a server, so control characters are escaped.
pub fn print_error(text: &str) {
    let line = format!("{}\n", escaped(text));
    // One write, so that no log line comes in between. If stderr is closed, nobody can be told.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_and_plain_off_a_terminal() {
        let rows = [
            vec![Cell::from("run"), Cell::new("completed", Tone::Good), Cell::from("é ok")],
            vec![Cell::from("longer"), Cell::new("failed", Tone::Bad), Cell::from("two\nlines")],
        ];
        assert_eq!(
            Output::plain(&OnceLock::new()).aligned(&rows),
            ["run     completed  é ok", "longer  failed     two lines"]
        );
    }

    #[test]
    fn a_long_cell_widens_only_its_own_row() {
        let long = "n".repeat(MAX_COLUMN + 1);
        let rows = [vec![Cell::from("a"), Cell::from("b")], vec![Cell::from(long.as_str()), Cell::from("b")]];
        assert_eq!(Output::plain(&OnceLock::new()).aligned(&rows), ["a  b".to_owned(), format!("{long}  b")]);
    }

    #[test]
    fn what_a_model_writes_cannot_command_the_terminal() {
        assert_eq!(escaped("txt.\u{202e}exe\u{ad}\u{e0041}"), r"txt.\u{202e}exe\u{ad}\u{e0041}");
        assert_eq!(escaped("a\x1b[2Jb\u{9b}c\td\n"), "a\\u{1b}[2Jb\\u{9b}c\td\n");
    }
}
