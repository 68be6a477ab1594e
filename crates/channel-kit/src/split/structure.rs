//! The parts of a Markdown text: its code, its other blocks and spans.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag};

/// A code block in the text as it was written.
pub(super) struct Block {
    pub(super) range: Range<usize>,
    /// The opening fence, without the language.
    pub(super) mark: String,
}

/// The parts of a text.
#[derive(Default)]
pub(super) struct Structure {
    /// The fenced code blocks.
    pub(super) blocks: Vec<Block>,
    /// The starts of blocks.
    pub(super) starts: Vec<usize>,
    /// The outermost spans with marks.
    pub(super) spans: Vec<Range<usize>>,
    /// The code spans of one line, with their ticks.
    pub(super) codes: Vec<Range<usize>>,
}

/// Reads the parts of a text.
pub(super) fn structure(markdown: &str) -> Structure {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut found = Structure::default();
    for (event, range) in Parser::new_ext(markdown, options).into_offset_iter() {
        if matches!(event, Event::Code(_)) && !markdown[range.clone()].contains('\n') {
            found.codes.push(range.clone());
        }
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_))) => {
                let marks = &markdown[range.clone()];
                let mark = marks
                    .chars()
                    .next()
                    .map_or(String::new(), |first| marks.chars().take_while(|c| *c == first).collect());
                found.blocks.push(Block { range, mark });
            }
            Event::Start(Tag::Emphasis | Tag::Strong | Tag::Strikethrough | Tag::Link { .. } | Tag::Image { .. })
            | Event::Code(_)
                if found.spans.last().is_none_or(|last| last.end <= range.start) =>
            {
                found.spans.push(range); // the outermost one
            }
            Event::Start(
                Tag::Paragraph | Tag::Heading { .. } | Tag::BlockQuote(_) | Tag::Item | Tag::Table(_) | Tag::HtmlBlock,
            )
            | Event::Rule => found.starts.push(range.start),
            _ => {}
        }
    }
    found.starts.sort_unstable();
    found
}
