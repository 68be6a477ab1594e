//! The code blocks of Markdown with their fences, and its other blocks and spans.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag};

/// The fences of a code block.
pub(super) struct Fence {
    /// Its content.
    pub(super) content: Range<usize>,
    /// The line that opens it, with what is before it on the line.
    pub(super) open: String,
    /// The same for a later piece.
    pub(super) again: String,
    /// The line that closes it.
    pub(super) close: String,
}

/// A code block in the text as it was written.
pub(super) struct Block {
    pub(super) range: Range<usize>,
    /// The opening fence, without the language.
    mark: String,
}

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
        })
    }
}

/// The fenced code blocks, the starts of blocks, and the spans with marks.
pub(super) fn structure(markdown: &str) -> (Vec<Block>, Vec<usize>, Vec<Range<usize>>) {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let (mut blocks, mut starts, mut spans) = (Vec::new(), Vec::new(), Vec::<Range<usize>>::new());
    for (event, range) in Parser::new_ext(markdown, options).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_))) => {
                let marks = &markdown[range.clone()];
                let mark = marks
                    .chars()
                    .next()
                    .map_or(String::new(), |first| marks.chars().take_while(|c| *c == first).collect());
                blocks.push(Block { range, mark });
            }
            Event::Start(Tag::Emphasis | Tag::Strong | Tag::Strikethrough | Tag::Link { .. } | Tag::Image { .. })
            | Event::Code(_)
                if spans.last().is_none_or(|last| last.end <= range.start) =>
            {
                spans.push(range); // the outermost one
            }
            Event::Start(
                Tag::Paragraph | Tag::Heading { .. } | Tag::BlockQuote(_) | Tag::Item | Tag::Table(_) | Tag::HtmlBlock,
            )
            | Event::Rule => starts.push(range.start),
            _ => {}
        }
    }
    starts.sort_unstable();
    (blocks, starts, spans)
}
