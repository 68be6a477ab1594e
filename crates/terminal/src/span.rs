//! Styled text, its width on a terminal, and its escape sequences.

use std::rc::Rc;

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The style of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) bold: bool,
    pub(crate) dim: bool,
    pub(crate) italic: bool,
    pub(crate) underline: bool,
    pub(crate) strike: bool,
    /// A foreground colour of the terminal's palette.
    pub(crate) colour: Option<Colour>,
    /// The target of a link: printable ASCII characters only.
    pub(crate) link: Option<Rc<str>>,
}

/// A foreground colour: the code of ECMA-48, "Select Graphic Rendition". The terminal's palette decides about its look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Red = 31,
    Green = 32,
    Yellow = 33,
    Blue = 34,
    Magenta = 35,
    Cyan = 36,
}

/// A text in one style. A line feed in it begins a new line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) text: String,
    pub(crate) style: Style,
}

impl Span {
    pub(crate) fn new(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }

    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::new(text, Style::default())
    }

    pub(crate) fn dim(text: impl Into<String>) -> Self {
        Self::new(text, Style { dim: true, ..Style::default() })
    }
}

/// The number of columns that a text takes on a terminal.
///
/// Terminals disagree about joined emoji: some show one picture, others each part. The larger width counts, so that no
/// terminal wraps a line by itself.
pub fn width(text: &str) -> usize {
    text.graphemes(true).map(grapheme_width).sum()
}

pub(crate) fn grapheme_width(grapheme: &str) -> usize {
    let parts = grapheme.chars().map(|c| c.width().unwrap_or(0)).sum();
    grapheme.width().max(parts)
}

/// The beginning of a one-line text, cut to this many columns. A cut text ends with "…".
pub fn cut(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let (mut kept, mut used) = (String::new(), 0);
    for grapheme in text.graphemes(true) {
        used += grapheme_width(grapheme);
        if used + 1 > most {
            break;
        }
        kept.push_str(grapheme);
    }
    if most > 0 {
        kept.push('…');
    }
    kept
}

/// The columns of a line.
pub(crate) fn line_width(line: &[Span]) -> usize {
    line.iter().map(|span| width(&span.text)).sum()
}

/// The line with its escape sequences, without a line end. Each line ends the styles and links that it begins, so lines
/// can be written one by one.
pub(crate) fn painted(line: &[Span], colour: bool) -> String {
    let mut out = String::new();
    for span in line {
        if colour {
            paint(&mut out, span);
        } else {
            out.push_str(&span.text);
        }
    }
    out.truncate(out.trim_end_matches(' ').len());
    out
}

fn paint(out: &mut String, Span { text, style }: &Span) {
    if let Some(link) = &style.link {
        // OSC 8, terminated by ST: https://gist.github.com/egmontkob/eb114294efbcd5adb1944c9f3cb5feda
        out.push_str(&format!("\x1b]8;;{link}\x1b\\"));
    }
    let flags = [(style.bold, 1), (style.dim, 2), (style.italic, 3), (style.underline, 4), (style.strike, 9)];
    let mut codes: Vec<String> = flags.iter().filter(|(on, _)| *on).map(|(_, code)| code.to_string()).collect();
    codes.extend(style.colour.map(|colour| (colour as u8).to_string()));
    if codes.is_empty() {
        out.push_str(text);
    } else {
        out.push_str(&format!("\x1b[{}m{text}\x1b[0m", codes.join(";")));
    }
    if style.link.is_some() {
        out.push_str("\x1b]8;;\x1b\\");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_counted_as_terminals_show_them() {
        for (text, columns) in [
            ("", 0),
            ("abc", 3),
            ("e\u{301}", 1),
            ("漢字", 4),
            ("👍", 2),
            ("👨\u{200d}👩\u{200d}👧", 6),
            ("❤\u{fe0f}", 2),
        ] {
            assert_eq!(width(text), columns, "{text:?}");
        }
    }

    #[test]
    fn a_text_is_cut_at_a_column() {
        for (text, most, expected) in
            [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("漢字", 3, "漢…"), ("漢字", 2, "…"), ("ab", 1, "…"), ("ab", 0, "")]
        {
            assert_eq!(cut(text, most), expected, "{text:?} {most}");
        }
    }

    #[test]
    fn a_line_closes_what_it_opens() {
        let style = Style { bold: true, colour: Some(Colour::Red), link: Some("https://a".into()), ..Style::default() };
        let line = [Span::new("x", style), Span::plain(" y ")];
        assert_eq!(painted(&line, true), "\x1b]8;;https://a\x1b\\\x1b[1;31mx\x1b[0m\x1b]8;;\x1b\\ y");
        assert_eq!(painted(&line, false), "x y");
    }
}
