//! Wraps styled text at word borders, by the width on a terminal.

use unicode_segmentation::UnicodeSegmentation;

use crate::span::{Span, Style, grapheme_width};

/// Punctuation of Chinese and Japanese that does not begin a line.
const NOT_FIRST: &str = "、。，．！？：；）」』】〉》〕・ー々";

/// One grapheme cluster.
struct Cell<'a> {
    text: &'a str,
    style: &'a Style,
    width: usize,
}

impl Cell<'_> {
    fn is_space(&self) -> bool {
        self.text == " "
    }
}

/// Wraps a text at spaces and between wide characters. A longer word is cut. A line feed in the text begins a new line.
/// `width` is at least 1; a character that is wider gets a line of its own.
pub(crate) fn wrapped(spans: &[Span], width: usize) -> Vec<Vec<Span>> {
    let mut wrap = Wrap { width: width.max(1), lines: Vec::new(), line: Vec::new(), used: 0, may_break: None };
    for cell in cells(spans) {
        wrap.add(cell);
    }
    wrap.end_line();
    wrap.lines.into_iter().map(joined).collect()
}

/// Cuts a text at exactly this width, for code. Spaces are kept.
pub(crate) fn chopped(spans: &[Span], width: usize) -> Vec<Vec<Span>> {
    let (width, mut used) = (width.max(1), 0);
    let mut lines = vec![Vec::new()];
    for cell in cells(spans) {
        if used + cell.width > width && used > 0 {
            lines.push(Vec::new());
            used = 0;
        }
        used += cell.width;
        lines.last_mut().expect("it begins with one line").push(cell);
    }
    lines.into_iter().map(joined).collect()
}

fn cells(spans: &[Span]) -> impl Iterator<Item = Cell<'_>> {
    spans.iter().flat_map(|span| {
        let cell = |text| Cell { text, style: &span.style, width: grapheme_width(text) };
        span.text.graphemes(true).map(cell)
    })
}

struct Wrap<'a> {
    width: usize,
    lines: Vec<Vec<Cell<'a>>>,
    line: Vec<Cell<'a>>,
    /// The columns of `line`.
    used: usize,
    /// The last place of `line` where it may be broken.
    may_break: Option<usize>,
}

impl<'a> Wrap<'a> {
    fn add(&mut self, cell: Cell<'a>) {
        if cell.text == "\n" {
            return self.end_line();
        }
        if cell.width > 1 && !self.line.is_empty() && !NOT_FIRST.contains(cell.text) {
            self.may_break = Some(self.line.len());
        }
        while self.used + cell.width > self.width && !self.line.is_empty() {
            if cell.is_space() {
                self.end_line();
                return;
            }
            let rest = match self.may_break.take() {
                Some(at) if at < self.line.len() => self.line.split_off(at),
                // The line ends where it may be broken, or nowhere.
                _ => Vec::new(),
            };
            self.end_line();
            self.used = rest.iter().map(|cell| cell.width).sum();
            self.line = rest;
        }
        if cell.is_space() && self.line.is_empty() && !self.lines.is_empty() {
            return; // a space at a border of lines
        }
        self.used += cell.width;
        let breaks_after = cell.is_space();
        self.line.push(cell);
        if breaks_after {
            self.may_break = Some(self.line.len());
        }
    }

    fn end_line(&mut self) {
        let mut line = std::mem::take(&mut self.line);
        while line.last().is_some_and(Cell::is_space) {
            line.pop();
        }
        self.lines.push(line);
        self.used = 0;
        self.may_break = None;
    }
}

/// Joins cells of the same style.
fn joined(cells: Vec<Cell<'_>>) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for cell in cells {
        match spans.last_mut() {
            Some(last) if last.style == *cell.style => last.text.push_str(cell.text),
            _ => spans.push(Span::new(cell.text, cell.style.clone())),
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::line_width;

    fn texts(lines: &[Vec<Span>]) -> Vec<String> {
        lines.iter().map(|line| line.iter().map(|span| span.text.as_str()).collect()).collect()
    }

    #[test]
    fn words_wrap_at_spaces_and_long_words_are_cut() {
        for (text, width, expected) in [
            ("", 5, vec![""]),
            ("one two three", 20, vec!["one two three"]),
            ("one two three", 7, vec!["one two", "three"]),
            ("one two three", 6, vec!["one", "two", "three"]),
            ("one  two", 3, vec!["one", "two"]),
            ("abcdefgh", 3, vec!["abc", "def", "gh"]),
            ("ab cdefgh", 4, vec!["ab", "cdef", "gh"]),
            ("a\nb", 5, vec!["a", "b"]),
            ("漢字漢字", 5, vec!["漢字", "漢字"]),
            ("漢字。字", 4, vec!["漢", "字。", "字"]),
            ("漢字", 1, vec!["漢", "字"]),
            ("ab", 0, vec!["a", "b"]),
            ("e\u{301}e\u{301}", 1, vec!["e\u{301}", "e\u{301}"]),
        ] {
            assert_eq!(texts(&wrapped(&[Span::plain(text)], width)), expected, "{text:?} {width}");
        }
    }

    #[test]
    fn styles_do_not_separate_a_word() {
        let bold = Style { bold: true, ..Style::default() };
        let spans = [Span::plain("an un"), Span::new("break", bold.clone()), Span::plain("able one")];
        let lines = wrapped(&spans, 11);
        assert_eq!(texts(&lines), ["an", "unbreakable", "one"]);
        assert_eq!(lines[1][1], Span::new("break", bold));
    }

    #[test]
    fn code_is_cut_at_the_width_and_keeps_its_spaces() {
        assert_eq!(texts(&chopped(&[Span::plain("  let x")], 4)), ["  le", "t x"]);
        assert_eq!(texts(&chopped(&[Span::plain("")], 4)), [""]);
    }

    proptest::proptest! {
        #[test]
        fn no_line_is_wider_than_the_terminal(text in "[a-c 漢é\n]{0,60}", width in 2usize..9) {
            for line in wrapped(&[Span::plain(text.clone())], width) {
                assert!(line_width(&line) <= width);
            }
            let kept: String = texts(&wrapped(&[Span::plain(text.clone())], width)).concat();
            let ink = |text: &str| text.replace([' ', '\n'], "");
            assert_eq!(ink(&kept), ink(&text));
        }
    }
}
