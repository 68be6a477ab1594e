//! A text that is cut into pieces, with the places at which a cut does least harm.

use std::ops::Range;

use super::Unit;

/// A text, the starts of its blocks, and the ranges that are better kept whole.
#[derive(Debug, Default)]
pub struct Layout {
    text: String,
    /// The starts of blocks and list items; ascending.
    borders: Vec<usize>,
    /// Code blocks and tables; ascending.
    codes: Vec<Code>,
    /// Spans whose marks would be torn apart; ascending and separate.
    spans: Vec<Range<usize>>,
}

/// A code block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Its content.
    pub range: Range<usize>,
    /// The units that each piece with a part of it needs for its fences.
    pub around: usize,
}

impl Layout {
    /// The text.
    pub fn text(&self) -> &str {
        &self.text
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

    /// Marks the text from `start` on as a code block.
    pub fn code_from(&mut self, start: usize, around: usize) {
        self.codes.push(Code { range: start..self.text.len(), around });
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

    /// The end of the longest piece from `start` on with at most `max` units, fences included.
    pub(super) fn reach(&self, start: usize, unit: Unit, max: usize) -> usize {
        let first = self.codes.partition_point(|code| code.range.end <= start);
        let mut codes = self.codes[first..].iter().peekable();
        let mut units = 0;
        for (at, c) in self.text[start..].char_indices() {
            let at = start + at;
            while let Some(code) = codes.next_if(|code| code.range.start <= at) {
                units += code.around;
            }
            units += unit.of(c);
            if units > max {
                return at.max(start + self.text[start..].chars().next().map_or(0, char::len_utf8));
            }
        }
        self.text.len()
    }
}
