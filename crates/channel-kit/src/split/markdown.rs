//! Pieces of Markdown: each is whole by itself. A code block that is cut is closed, and opened again with its language.

use std::ops::Range;

use super::fences::{Fence, structure};
use super::{Layout, Limits, Unit, cut};

/// The smallest limit that is kept, in units.
pub const LIMIT_MIN: usize = 32;

/// Splits Markdown into pieces of at most `max` units, in order; an empty text has none. The same text always gives the
/// same pieces, so a delivery can continue after the pieces of an earlier attempt.
///
/// `max`: at least [`LIMIT_MIN`].
pub fn pieces(markdown: &str, unit: Unit, max: usize) -> Vec<String> {
    let max = max.max(LIMIT_MIN);
    let source = Source::read(markdown, unit, max / 2);
    let limits = Limits { unit, first: max, rest: max };
    cut(&source.layout, limits).into_iter().map(|range| source.piece(range)).collect()
}

/// Markdown without the fences of its code blocks, and the fences.
#[derive(Default)]
struct Source {
    layout: Layout,
    fences: Vec<Fence>,
}

impl Source {
    /// Code blocks whose fences need more than `around_max` units stay as they were written.
    fn read(markdown: &str, unit: Unit, around_max: usize) -> Self {
        let (blocks, starts, spans) = structure(markdown);
        let mut source = Self::default();
        let (mut at, mut starts, mut spans) = (0, starts.into_iter().peekable(), spans.into_iter().peekable());
        for block in blocks {
            let line = markdown[..block.range.start].rfind('\n').map_or(0, |end| end + 1);
            let Some(fence) = Fence::read(markdown, line, &block) else { continue };
            let around = unit.count(&fence.open).max(unit.count(&fence.again)) + unit.count(&fence.close);
            if line < at || around > around_max {
                continue;
            }
            source.copy(markdown, at..line, &mut starts, &mut spans);
            source.layout.border();
            let start = source.layout.text().len();
            source.layout.push(&markdown[fence.content.clone()]);
            source.layout.code_from(start, around);
            source.fences.push(Fence { content: start..source.layout.text().len(), ..fence });
            at = block.range.end;
            while starts.next_if(|start| *start < at).is_some() {}
            while spans.next_if(|span| span.start < at).is_some() {}
        }
        source.copy(markdown, at..markdown.len(), &mut starts, &mut spans);
        if source.layout.text().trim().is_empty() {
            source = Self::default();
            source.layout.push(markdown);
        }
        source
    }

    /// Copies a part without code blocks.
    fn copy(
        &mut self,
        markdown: &str,
        part: Range<usize>,
        starts: &mut std::iter::Peekable<impl Iterator<Item = usize>>,
        spans: &mut std::iter::Peekable<impl Iterator<Item = Range<usize>>>,
    ) {
        let shift = |at: usize| self.layout.text().len() + at - part.start;
        let moved: Vec<_> = std::iter::from_fn(|| spans.next_if(|span| span.end <= part.end))
            .filter(|span| span.start >= part.start)
            .map(|span| shift(span.start)..shift(span.end))
            .collect();
        moved.into_iter().for_each(|span| self.layout.span(span));
        let mut at = part.start;
        while let Some(start) = starts.next_if(|start| *start < part.end) {
            if start >= at {
                self.layout.push(&markdown[at..start]);
                self.layout.border();
                at = start;
            }
        }
        self.layout.push(&markdown[at..part.end]);
    }

    /// A piece with its fences.
    fn piece(&self, range: Range<usize>) -> String {
        let text = self.layout.text();
        let (mut piece, mut at) = (String::with_capacity(range.len() + 16), range.start);
        let first = self.fences.partition_point(|fence| fence.content.end <= range.start);
        for fence in self.fences[first..].iter().take_while(|fence| fence.content.start < range.end) {
            let (from, to) = (fence.content.start.max(range.start), fence.content.end.min(range.end));
            piece.push_str(&text[at..from]);
            piece.push_str(if from == fence.content.start { &fence.open } else { &fence.again });
            piece.push_str(&text[from..to]);
            piece.push_str(&fence.close);
            at = to;
        }
        piece.push_str(&text[at..range.end]);
        piece
    }
}

#[cfg(test)]
mod tests;
