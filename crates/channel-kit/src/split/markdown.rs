//! Pieces of Markdown: each is whole by itself. A code block that is cut is closed, and opened again with its language, and
//! so is a code span of one line. Text that a cut puts at the start of a line becomes no heading, list, quote or rule by
//! that. So a question whose values are such spans, blocks, or text that cannot act within a line, shows them so in each
//! piece. Other text can act: a cut before `~~~`, a link definition or HTML lets these begin a line.

use std::ops::Range;

use super::fences::Fence;
use super::structure::{Structure, structure};
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

/// Markdown without the marks of its code, and these marks.
struct Source {
    layout: Layout,
    fences: Vec<Fence>,
    unit: Unit,
}

impl Source {
    /// Code blocks whose fences need more than `around_max` units get shorter ones in each part, or stay as they were
    /// written if that is not enough.
    fn read(markdown: &str, unit: Unit, around_max: usize) -> Self {
        let structure = structure(markdown);
        let mut source = Self { layout: Layout::of_markdown(), fences: Vec::new(), unit };
        let mut at = 0;
        for block in &structure.blocks {
            let line = markdown[..block.range.start].rfind('\n').map_or(0, |end| end + 1);
            let fence = Fence::read(markdown, line, block);
            let bounded = fence.and_then(|fence| {
                let content = &markdown[fence.content.clone()];
                fence.bounded(content, unit, around_max)
            });
            let Some(fence) = bounded.filter(|_| line >= at) else { continue };
            source.copy(markdown, at..line, &structure);
            source.layout.border();
            source.fence(markdown, fence);
            at = block.range.end;
        }
        source.copy(markdown, at..markdown.len(), &structure);
        if source.layout.text().trim().is_empty() {
            source = Self { layout: Layout::of_markdown(), fences: Vec::new(), unit };
            source.layout.push(markdown);
        }
        source
    }

    /// Appends the content of a code.
    fn fence(&mut self, markdown: &str, fence: Fence) {
        let start = self.layout.text().len();
        self.layout.push(&markdown[fence.content.clone()]);
        let content = start..self.layout.text().len();
        self.layout.code(fence.code(content.clone(), self.unit));
        self.fences.push(fence.moved(content));
    }

    /// Appends a part without code blocks.
    fn copy(&mut self, markdown: &str, part: Range<usize>, structure: &Structure) {
        let mut moved = Moved::default();
        let mut at = part.start;
        for code in within(&structure.codes, &part) {
            let Some(fence) = Fence::inline(markdown, code) else { continue };
            self.copy_text(markdown, at..code.start, structure, &mut moved);
            moved.add(fence.content.clone(), self.layout.text().len());
            self.fence(markdown, fence);
            at = code.end;
        }
        self.copy_text(markdown, at..part.end, structure, &mut moved);
        for span in within(&structure.spans, &part) {
            self.layout.span(moved.place(span.start)..moved.place(span.end));
        }
    }

    /// Appends a part without code.
    fn copy_text(&mut self, markdown: &str, part: Range<usize>, structure: &Structure, moved: &mut Moved) {
        moved.add(part.clone(), self.layout.text().len());
        let first = structure.starts.partition_point(|start| *start < part.start);
        let mut at = part.start;
        for start in structure.starts[first..].iter().take_while(|start| **start < part.end) {
            self.layout.push(&markdown[at..*start]);
            self.layout.border();
            at = *start;
        }
        self.layout.push(&markdown[at..part.end]);
    }

    /// A piece with its marks.
    fn piece(&self, range: Range<usize>) -> String {
        let text = self.layout.text();
        let (mut piece, mut at) = (String::with_capacity(range.len() + 16), range.start);
        if let Some(escape) = self.layout.escape_at(range.start).filter(|escape| *escape < range.end) {
            piece.push_str(&text[at..escape]);
            piece.push('\\');
            at = escape;
        }
        let first = self.fences.partition_point(|fence| fence.content.end <= range.start);
        for fence in self.fences[first..].iter().take_while(|fence| fence.content.start < range.end) {
            let (from, to) = (fence.content.start.max(range.start), fence.content.end.min(range.end));
            let (open, close) = fence.marks(&text[from..to], from == fence.content.start, to == fence.content.end);
            piece.push_str(&text[at..from]);
            piece.extend([&open, &text[from..to], &close]);
            at = to;
        }
        piece.push_str(&text[at..range.end]);
        piece
    }
}

/// Places of the written text in the layout.
#[derive(Default)]
struct Moved(Vec<(Range<usize>, usize)>);

impl Moved {
    /// Adds a part that follows the earlier ones.
    fn add(&mut self, written: Range<usize>, start: usize) {
        self.0.push((written, start));
    }

    /// The place of a written one. A removed mark has that of its code's start or end.
    fn place(&self, written: usize) -> usize {
        let after = self.0.partition_point(|(part, _)| part.start <= written);
        self.0[..after].last().map_or(0, |(part, start)| start + written.min(part.end) - part.start)
    }
}

/// The ranges that lie within a part; all are ascending and separate.
fn within<'a>(ranges: &'a [Range<usize>], part: &'a Range<usize>) -> impl Iterator<Item = &'a Range<usize>> {
    let first = ranges.partition_point(|range| range.start < part.start);
    ranges[first..].iter().take_while(|range| range.end <= part.end)
}

#[cfg(test)]
mod tests;
