//! The last lines of a terminal, which are redrawn in place.

use crate::span::width;

/// Lines that were drawn below all others, and are erased before anything else is written.
#[derive(Debug, Default)]
pub struct LiveArea {
    /// The columns of each drawn line.
    drawn: Vec<usize>,
}

/// Escape sequence: erases from the cursor to the end of the screen (ECMA-48, ED).
const ERASE_BELOW: &str = "\x1b[J";

impl LiveArea {
    /// Whether nothing is drawn.
    pub fn is_empty(&self) -> bool {
        self.drawn.is_empty()
    }

    /// Returns the output that erases the area. The cursor is then at the beginning of the line on which the area began.
    /// `columns`: the present width of the terminal, which has wrapped the drawn lines if it has become narrower.
    pub fn erase(&mut self, columns: usize) -> String {
        if self.drawn.is_empty() {
            return String::new();
        }
        let rows: usize = self.drawn.drain(..).map(|line| line.max(1).div_ceil(columns.max(1))).sum();
        match rows - 1 {
            0 => format!("\r{ERASE_BELOW}"),
            up => format!("\r\x1b[{up}A{ERASE_BELOW}"),
        }
    }

    /// Returns the output that draws these lines, which must fit the terminal. The area must be empty, and the cursor at
    /// the beginning of a line.
    pub fn draw(&mut self, lines: &[String]) -> String {
        self.drawn = lines.iter().map(|line| width(&without_sequences(line))).collect();
        lines.join("\r\n")
    }
}

/// The text of a line without the escape sequences that this crate makes: SGR and OSC 8.
fn without_sequences(line: &str) -> String {
    let (mut text, mut rest) = (String::with_capacity(line.len()), line);
    while let Some(at) = rest.find('\x1b') {
        text.push_str(&rest[..at]);
        let end = if rest[at..].starts_with("\x1b]") {
            rest[at..].find("\x1b\\").map(|end| end + 2)
        } else {
            rest[at..].find('m').map(|end| end + 1)
        };
        rest = end.map_or("", |end| &rest[at + end..]);
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_is_erased_from_its_first_row() {
        let mut area = LiveArea::default();
        assert_eq!(area.erase(80), "");
        assert_eq!(area.draw(&["one".into(), "two".into()]), "one\r\ntwo");
        assert_eq!(area.erase(80), "\r\x1b[1A\x1b[J");
        assert_eq!(area.erase(80), "");
        let _ = area.draw(&["\x1b]8;;https://a\x1b\\\x1b[1mabcdef\x1b[0m\x1b]8;;\x1b\\".into()]);
        assert_eq!(area.erase(80), "\r\x1b[J", "sequences have no width");
        let _ = area.draw(&["abcdef".into(), String::new()]);
        assert_eq!(area.erase(2), "\r\x1b[3A\x1b[J", "the terminal has become narrower");
    }
}
