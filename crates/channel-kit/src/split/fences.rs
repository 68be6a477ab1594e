//! The code blocks of Markdown with their fences, and its code spans with their ticks.

use std::ops::Range;

use super::layout::Parts;
use super::structure::Block;
use super::{Code, Unit};

/// The marks around a code.
pub(super) struct Fence {
    /// Its content.
    pub(super) content: Range<usize>,
    /// The marks that open it: of a block, the line with what is before it.
    open: String,
    /// The same for a later piece.
    again: String,
    /// The marks that close it: of a block, a line.
    close: String,
    /// The ticks or tildes alone.
    mark: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Block,
    /// A block whose fences are too long for each part.
    LongBlock,
    Inline,
}

/// The ticks of a part of a block, at least.
const BLOCK_TICKS_MIN: usize = 3;

impl Fence {
    /// `line`: the start of the line with the opening fence. `None`: it has no content.
    pub(super) fn read(markdown: &str, line: usize, block: &Block) -> Option<Self> {
        let opened = markdown[block.range.start..block.range.end].find('\n')? + block.range.start;
        let before = &markdown[line..block.range.start];
        // Within a list item, later lines have as many spaces; within a quote, its mark again.
        let indent: String = before.chars().map(|c| if c == '>' { '>' } else { ' ' }).collect();
        let body = &markdown[opened + 1..block.range.end];
        let last = body.trim_end().rfind('\n').map_or(0, |at| at + 1);
        let closing = body[last..].trim_matches(|c: char| c.is_whitespace() || c == '>');
        let is_closed = closing.len() >= block.mark.len() && closing.chars().all(|c| block.mark.starts_with(c));
        let end = if is_closed { last } else { body.len() };
        let content = body[..end].trim_end_matches('\n').len();
        let fence = markdown[block.range.start..opened].trim_end();
        (content > 0).then(|| Self {
            content: opened + 1..opened + 1 + content,
            open: format!("{before}{fence}\n"),
            again: format!("{indent}{fence}\n"),
            close: format!("\n{indent}{}", block.mark),
            mark: block.mark.clone(),
            kind: Kind::Block,
        })
    }

    /// Reads a code span with its ticks.
    pub(super) fn inline(markdown: &str, span: &Range<usize>) -> Option<Self> {
        let whole = &markdown[span.clone()];
        let mark = &whole[..whole.len() - whole.trim_start_matches('`').len()];
        let inner = whole.strip_prefix(mark)?.strip_suffix(mark).filter(|inner| !inner.is_empty())?;
        // A renderer removes one space at each side.
        let padded = inner.strip_prefix(' ').and_then(|inner| inner.strip_suffix(' '));
        let pad = if padded.is_some_and(|inner| !inner.trim().is_empty()) { " " } else { "" };
        let before = mark.len() + pad.len();
        Some(Self {
            content: span.start + before..span.end - before,
            open: format!("{mark}{pad}"),
            again: String::new(), // see `marks`
            close: format!("{pad}{mark}"),
            mark: mark.to_owned(),
            kind: Kind::Inline,
        })
    }

    /// The same with its content at another place.
    pub(super) fn moved(self, content: Range<usize>) -> Self {
        Self { content, ..self }
    }

    /// The same for parts, each of which gets fences of its own if these need more than `max` units. `None`: these need
    /// more too.
    pub(super) fn bounded(mut self, content: &str, unit: Unit, max: usize) -> Option<Self> {
        if self.around(unit) > max {
            self.kind = Kind::LongBlock;
            let fits = self.besides(unit) + 2 * BLOCK_TICKS_MIN <= max;
            (fits && self.mark.starts_with('`') && longest_ticks(content) < self.mark.len()).then_some(self)
        } else {
            Some(self)
        }
    }

    /// Its content as a code, at a place of the layout.
    pub(super) fn code(&self, range: Range<usize>, unit: Unit) -> Code {
        let parts = match self.kind {
            Kind::Block => Parts::Same,
            Kind::LongBlock => Parts::Ticks { least: BLOCK_TICKS_MIN, besides: self.besides(unit) },
            Kind::Inline => Parts::Ticks { least: 1, besides: 2 }, // a space at each side
        };
        Code { range, around: self.around(unit), parts, is_inline: self.kind == Kind::Inline }
    }

    /// The marks before and behind a part.
    pub(super) fn marks(&self, part: &str, is_first: bool, is_last: bool) -> (String, String) {
        let open = if is_first { &self.open } else { &self.again };
        let is_whole = is_first && is_last;
        let ticks = |least: usize| "`".repeat(least.max(longest_ticks(part) + 1));
        match self.kind {
            Kind::LongBlock if !is_whole => {
                let ticks = ticks(BLOCK_TICKS_MIN);
                (open.replacen(&self.mark, &ticks, 1), self.close.replacen(&self.mark, &ticks, 1))
            }
            Kind::Inline if !is_whole => {
                let ticks = ticks(1);
                let ends = |of: char| part.starts_with(of) || part.ends_with(of);
                let pad = if ends(' ') || ends('`') { " " } else { "" };
                (format!("{ticks}{pad}"), format!("{pad}{ticks}"))
            }
            _ => (open.clone(), self.close.clone()),
        }
    }

    fn around(&self, unit: Unit) -> usize {
        unit.count(&self.open).max(unit.count(&self.again)) + unit.count(&self.close)
    }

    /// The units of its marks without the ticks.
    fn besides(&self, unit: Unit) -> usize {
        self.around(unit) - 2 * self.mark.len()
    }
}

fn longest_ticks(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}
