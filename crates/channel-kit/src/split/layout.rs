//! A text that is cut into pieces, with the places at which a cut does least harm.

use std::ops::Range;

use super::Unit;
use super::lengths::Lengths;

/// A text, the starts of its blocks, and the ranges that are better kept whole.
#[derive(Debug, Default)]
pub struct Layout {
    text: String,
    /// The starts of blocks and list items; ascending.
    borders: Vec<usize>,
    /// Code blocks, tables and code spans; ascending and separate.
    codes: Vec<Code>,
    /// Spans whose marks would be torn apart; ascending and separate.
    spans: Vec<Range<usize>>,
    /// Whether a piece is read as Markdown again, so that the start of a line may act.
    is_markdown: bool,
}

/// A code block or a code span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Its content.
    pub range: Range<usize>,
    /// The units of the marks around it if it is whole.
    pub around: usize,
    /// The marks around a part of it.
    pub(super) parts: Parts,
    /// Whether it is a part of a line, whose space is kept at a cut.
    pub(super) is_inline: bool,
}

/// The marks around a part of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parts {
    /// Those of the whole.
    Same,
    /// Two times more ticks than stand together in the part, and at least `least`; with `besides` other units.
    Ticks { least: usize, besides: usize },
}

impl Layout {
    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// An empty text whose pieces are read as Markdown again.
    pub(super) fn of_markdown() -> Self {
        Self { is_markdown: true, ..Self::default() }
    }

    /// Whether a piece is read as Markdown again.
    pub(super) fn is_markdown(&self) -> bool {
        self.is_markdown
    }

    /// Appends a text.
    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Marks the start of a block here.
    pub fn border(&mut self) {
        if self.borders.last() != Some(&self.text.len()) {
            self.borders.push(self.text.len());
        }
    }

    /// Marks the text from `start` on as a code block, each part of which needs `around` units for its fences.
    pub fn code_from(&mut self, start: usize, around: usize) {
        self.code(Code { range: start..self.text.len(), around, parts: Parts::Same, is_inline: false });
    }

    /// Marks a code behind the earlier ones.
    pub(super) fn code(&mut self, code: Code) {
        self.codes.push(code);
    }

    /// Marks a span behind the earlier ones.
    pub fn span(&mut self, range: Range<usize>) {
        self.spans.push(range);
    }

    /// The last border in `range`, its start excluded and its end included.
    pub fn last_border(&self, range: &Range<usize>) -> Option<usize> {
        let after = self.borders.partition_point(|border| *border <= range.end);
        self.borders[..after].last().copied().filter(|border| *border > range.start)
    }

    /// The code block that contains a position. The block's start counts, its end does not.
    pub fn code_at(&self, at: usize) -> Option<&Code> {
        let after = self.codes.partition_point(|code| code.range.start <= at);
        self.codes[..after].last().filter(|code| at < code.range.end)
    }

    /// The span that a cut here would tear apart.
    pub fn span_at(&self, at: usize) -> Option<&Range<usize>> {
        let after = self.spans.partition_point(|span| span.start < at);
        self.spans[..after].last().filter(|span| at < span.end)
    }

    /// The codes that end behind a position.
    pub(super) fn codes_after(&self, at: usize) -> &[Code] {
        &self.codes[self.codes.partition_point(|code| code.range.end <= at)..]
    }

    /// The end of the text of a range without the space at its end. The space of a code span stays.
    pub(super) fn trimmed_end(&self, range: Range<usize>) -> usize {
        let trimmed = range.start + self.text[range.clone()].trim_end().len();
        let before = self.codes.partition_point(|code| code.range.start < range.end);
        let spans = self.codes[..before].last().filter(|code| code.is_inline);
        spans.map_or(trimmed, |code| code.range.end.min(range.end).max(trimmed))
    }

    /// Whether a position is a border.
    pub(super) fn is_border(&self, at: usize) -> bool {
        self.borders.binary_search(&at).is_ok()
    }

    /// Whether a span starts at a position.
    pub(super) fn starts_span(&self, at: usize) -> bool {
        self.spans.binary_search_by_key(&at, |span| span.start).is_ok()
    }

    /// The text before a position on its line, without a code block before it.
    pub(super) fn line_before(&self, at: usize) -> &str {
        let line = self.text[..at].rfind('\n').map_or(0, |end| end + 1);
        let ended = self.codes.partition_point(|code| code.range.end <= at);
        let block = self.codes[..ended].iter().rev().find(|code| !code.is_inline).map_or(0, |code| code.range.end);
        &self.text[line.max(block)..at]
    }

    /// The end of the longest piece from `start` on with at most `max` units, marks included. At least one character.
    pub(super) fn reach(&self, start: usize, unit: Unit, max: usize) -> usize {
        let within = Lengths::new(self, start, unit).take_while(|length| length.text <= max);
        let one = start + self.text[start..].chars().next().map_or(0, char::len_utf8);
        within.filter(|length| length.whole <= max).last().map_or(one, |length| length.end)
    }

    /// Whether a piece has at most `max` units, marks included.
    pub(super) fn fits(&self, piece: &Range<usize>, unit: Unit, max: usize) -> bool {
        let mut lengths = Lengths::new(self, piece.start, unit);
        lengths.find(|length| length.end >= piece.end).is_none_or(|length| length.whole <= max)
    }
}
