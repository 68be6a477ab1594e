//! The length of a piece with its marks, for each end that it could have.

use std::iter::Peekable;
use std::slice::Iter;
use std::str::CharIndices;

use super::layout::Parts;
use super::{Code, Layout, Unit};

/// The lengths of the pieces that begin at one place, the shortest first.
pub(super) struct Lengths<'a> {
    start: usize,
    unit: Unit,
    chars: CharIndices<'a>,
    codes: Peekable<Iter<'a, Code>>,
    /// The last code that has begun.
    open: Option<Open<'a>>,
    text: usize,
    /// The units of the marks of the codes before `open`.
    marks: usize,
}

/// The length of a piece.
pub(super) struct Length {
    /// The end of the piece.
    pub(super) end: usize,
    /// Its units without marks. They only grow.
    pub(super) text: usize,
    /// Its units with the marks. A longer piece may have fewer, since a whole code may have shorter marks than a part.
    pub(super) whole: usize,
}

/// A code of which the piece has a part.
struct Open<'a> {
    code: &'a Code,
    /// Whether the piece has its beginning.
    has_start: bool,
    /// The ticks that stand together at the end of the part, and the most that do anywhere in it.
    ticks: usize,
    longest: usize,
}

impl<'a> Lengths<'a> {
    pub(super) fn new(layout: &'a Layout, start: usize, unit: Unit) -> Self {
        let codes = layout.codes_after(start).iter().peekable();
        Self { start, unit, chars: layout.text()[start..].char_indices(), codes, open: None, text: 0, marks: 0 }
    }
}

impl Iterator for Lengths<'_> {
    type Item = Length;

    fn next(&mut self) -> Option<Length> {
        let (at, c) = self.chars.next()?;
        let (at, end) = (self.start + at, self.start + at + c.len_utf8());
        while let Some(code) = self.codes.next_if(|code| code.range.start <= at) {
            self.marks += self.open.take().map_or(0, |open| open.marks(at));
            self.open = Some(Open { code, has_start: code.range.start >= self.start, ticks: 0, longest: 0 });
        }
        if let Some(open) = self.open.as_mut().filter(|open| at < open.code.range.end) {
            open.ticks = if c == '`' { open.ticks + 1 } else { 0 };
            open.longest = open.longest.max(open.ticks);
        }
        self.text += self.unit.of(c);
        let open = self.open.as_ref().map_or(0, |open| open.marks(end));
        Some(Length { end, text: self.text, whole: self.text + self.marks + open })
    }
}

impl Open<'_> {
    /// The units of its marks if the piece ends here.
    fn marks(&self, end: usize) -> usize {
        match self.code.parts {
            Parts::Ticks { least, besides } if !self.has_start || end < self.code.range.end => {
                besides + 2 * least.max(self.longest + 1)
            }
            Parts::Same | Parts::Ticks { .. } => self.code.around,
        }
    }
}
