//! Renders an answer while it is streamed: a block is final once another one has begun after it.

use std::ops::Range;

use pulldown_cmark::{Event, Parser, Tag};

use crate::Look;
use crate::markdown::{options, render};

/// A Markdown text that grows. Finished blocks are returned once and never change; the unfinished one can be shown at any
/// time. All returned lines together do not depend on the pieces in which the text came.
#[derive(Debug)]
pub struct Answer {
    look: Look,
    /// The source from the beginning of the first unfinished block.
    rest: String,
    /// The bytes of `rest` that were searched for finished blocks.
    searched: usize,
    /// Whether a block was returned.
    has_begun: bool,
}

impl Answer {
    /// An empty answer.
    pub fn new(look: Look) -> Self {
        Self { look, rest: String::new(), searched: 0, has_begun: false }
    }

    /// Continues for a terminal of another size. Lines that were returned stay as they are.
    pub fn resize(&mut self, look: Look) {
        self.look = look;
    }

    /// Adds a piece of the text.
    pub fn push(&mut self, piece: &str) {
        self.rest.push_str(piece);
    }

    /// Returns the lines of the blocks that have been finished since the last call.
    pub fn finished(&mut self) -> Vec<String> {
        // A line without its end may still become anything.
        let Some(whole) = self.rest.rfind('\n').map(|at| at + 1).filter(|whole| *whole > self.searched) else {
            return Vec::new();
        };
        let escaped = without_definitions(&self.rest[..whole]);
        let whole = escaped.as_ref().map_or(whole, String::len);
        if let Some(escaped) = escaped {
            let line = self.rest.split_off(self.rest.rfind('\n').map_or(0, |at| at + 1));
            self.rest = escaped + &line;
        }
        match last_block(&self.rest[..whole]) {
            Some(last) if last > 0 => {
                let source: String = self.rest.drain(..last).collect();
                self.searched = 0;
                self.lines_of(&source)
            }
            _ => {
                self.searched = whole;
                Vec::new()
            }
        }
    }

    /// The lines of the unfinished block, as it is now. Later text may change them.
    pub fn unfinished(&self) -> Vec<String> {
        let mut lines = render(&self.rest, self.look);
        if self.has_begun && !lines.is_empty() {
            lines.insert(0, String::new());
        }
        lines
    }

    /// Returns the remaining lines. The answer is empty afterwards and can begin anew.
    pub fn finish(&mut self) -> Vec<String> {
        // A file of several blocks may come in one piece without a line end.
        if !self.rest.is_empty() && !self.rest.ends_with('\n') {
            self.rest.push('\n');
        }
        let mut lines = self.finished();
        let source = std::mem::take(&mut self.rest);
        lines.extend(self.lines_of(&source));
        *self = Self::new(self.look);
        lines
    }

    /// Renders finished blocks, each on its own: so the result does not depend on how many of them came together.
    fn lines_of(&mut self, source: &str) -> Vec<String> {
        let mut lines = render(source, self.look);
        if self.has_begun && !lines.is_empty() {
            lines.insert(0, String::new());
        }
        self.has_begun |= !lines.is_empty();
        lines
    }
}

/// The source with escaped link definitions, if it has any. A definition would be invisible, and would change texts that
/// were shown before it; so it is shown as it is written.
fn without_definitions(source: &str) -> Option<String> {
    if !source.contains("]:") {
        return None;
    }
    let literal: Vec<Range<usize>> = Parser::new_ext(source, options())
        .into_offset_iter()
        .filter(|(event, _)| matches!(event, Event::Start(Tag::CodeBlock(_) | Tag::HtmlBlock)))
        .map(|(_, range)| range)
        .collect();
    let mut literal = literal.into_iter().peekable();
    let (mut places, mut at) = (Vec::new(), 0);
    for line in source.split_inclusive('\n') {
        let begin = at + line.len() - line.trim_start_matches(is_marker).len();
        at += line.len();
        while literal.next_if(|range| range.end <= begin).is_some() {}
        if literal.peek().is_none_or(|range| !range.contains(&begin)) && is_definition(&source[begin..]) {
            places.push(begin);
        }
    }
    let mut escaped = source.to_owned();
    places.iter().rev().for_each(|at| escaped.insert(*at, '\\'));
    (!places.is_empty()).then_some(escaped)
}

/// Characters of quotes, lists and indentation, which may stand before a definition.
fn is_marker(c: char) -> bool {
    c.is_ascii_digit() || " \t>*+-.)".contains(c)
}

/// Whether a text begins as a link definition does: with `[label]:`. In any other text, the bracket is no more than that.
fn is_definition(text: &str) -> bool {
    let Some(label) = text.strip_prefix('[') else { return false };
    // CommonMark: a label has at most 999 characters, no bracket, and no blank line. A character has at most 4 bytes.
    let end = label.bytes().take(4 * 1000).position(|byte| matches!(byte, b'[' | b']'));
    end.is_some_and(|end| label[end..].starts_with("]:") && !label[..end].contains("\n\n"))
}

/// The beginning of the line on which the last top-level block begins.
fn last_block(source: &str) -> Option<usize> {
    let (mut depth, mut last) = (0_usize, None);
    for (event, range) in Parser::new_ext(source, options()).into_offset_iter() {
        match event {
            Event::Start(_) => {
                if depth == 0 {
                    last = Some(range.start);
                }
                depth += 1;
            }
            Event::End(_) => depth = depth.saturating_sub(1),
            Event::Rule if depth == 0 => last = Some(range.start),
            _ => {}
        }
    }
    last.map(|at| source[..at].rfind('\n').map_or(0, |line| line + 1))
}

#[cfg(test)]
mod tests;
