//! One line about a tool call that has ended.

use std::time::Duration;

use crate::Look;
use crate::span::{Colour, Span, Style, cut, painted, width};

/// A tool call that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRow {
    /// The tool.
    pub tool: String,
    /// Its argument, on one line.
    pub argument: String,
    /// How long it took.
    pub took: Duration,
    /// Whether its result is a success.
    pub is_success: bool,
}

impl ToolRow {
    /// The line, at most as wide as the terminal: the argument is cut before the time.
    pub fn line(&self, look: Look) -> String {
        let [tool, argument] = [&self.tool, &self.argument].map(|text| belay_text::escaped_line(text));
        let time = format!(" · {}", seconds(self.took));
        let mark = if self.is_success { "✓" } else { "✗" };
        let call = format!("{mark} {tool} {argument}");
        let most = look.width.max(1);
        let line = match most.checked_sub(width(&time)) {
            Some(left) if left > width("✓ ") + 4 => cut(call.trim_end(), left) + &time,
            _ => cut(call.trim_end(), most),
        };
        if self.is_success {
            return painted(&[Span::dim(line)], look.colour);
        }
        painted(&[Span::new(line, Style { colour: Some(Colour::Red), ..Style::default() })], look.colour)
    }
}

fn seconds(took: Duration) -> String {
    match took.as_millis() {
        ms @ 0..1000 => format!("{ms} ms"),
        ms @ 0..10_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => format!("{} s", took.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_fits_the_terminal_and_shows_what_a_call_did() {
        let row = |argument: &str, ms| ToolRow {
            tool: "run_command".into(),
            argument: argument.into(),
            took: Duration::from_millis(ms),
            is_success: ms != 12_345,
        };
        for (row, width, expected) in [
            (row("cargo test", 1234), 80, "✓ run_command cargo test · 1.2 s"),
            (row("", 12_345), 80, "✗ run_command · 12 s"),
            (row("cargo test --all", 50), 30, "✓ run_command cargo t… · 50 ms"),
            (row("a\x1b[2Jb", 0), 80, "✓ run_command a\\u{1b}[2Jb · 0 ms"),
            (row("x", 0), 8, "✓ run_c…"),
        ] {
            assert_eq!(row.line(Look { width, colour: false }), expected);
        }
    }
}
