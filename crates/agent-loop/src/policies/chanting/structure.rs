//! The lines of Markdown, told apart while they stream: [`Structure::next`] cuts a text into [`Part`]s.
//!
//! A line's kind is decided at its beginning, from a few characters that are held back until then, and from what the
//! lines before left open: a fence, a list, a table, a paragraph. How the text comes in pieces makes no difference: what
//! is known of an unfinished line is in the state, never in the piece.

use super::head::{Head, Kind, is_mark, kind, kind_in_fence};

/// Longest line that is taken for code, a table row, an entry of a list and so on, in characters. What is longer is read
/// as prose from there on: no person's table row has 4096 characters, but a stuck model's rule below a heading has.
const LONGEST_LINE: usize = 4096;

/// The same for a rule. Nobody's terminal is wider than 256 characters.
const LONGEST_RULE: usize = 256;

/// A piece of a line.
#[derive(Debug, PartialEq)]
pub(super) enum Part<'a> {
    /// A line begins; its first characters, without the mark, are in the head.
    Begin(Kind, Head),
    /// More of the line, without its end.
    Text(Kind, &'a str),
    /// The line is too long for what it was taken for: the rest is prose.
    Spill,
    /// The line ends.
    End(Kind),
}

/// What is known of the text so far.
#[derive(Clone, Debug, PartialEq, Default)]
pub(super) struct Structure {
    /// The line's kind, once it is known, and until then how it begins.
    line: Option<Kind>,
    head: Head,
    /// Blanks before the head; a tab is four.
    indent: usize,
    /// Characters of the line since its kind is known; not counted for prose.
    chars: usize,
    /// A row of marks has a `|` among them.
    pipe: bool,
    fence: Option<Fence>,
    /// What the line opens, if it ends as it should.
    opening: Option<Fence>,
    /// The line before is text that indented lines belong to, not blank and not code.
    paragraph: bool,
    list: bool,
    table: bool,
}

/// Fenced code: the mark and how many of them open it. Only as many close it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fence {
    mark: char,
    length: u32,
}

impl Structure {
    /// The next part of the text; `rest` is moved behind it. `None`: everything is read.
    pub(super) fn next<'a>(&mut self, rest: &mut &'a str) -> Option<Part<'a>> {
        match self.line {
            None => self.begin(rest),
            Some(kind) => self.go_on(kind, rest),
        }
    }

    fn begin<'a>(&mut self, rest: &mut &'a str) -> Option<Part<'a>> {
        while let Some(next) = rest.chars().next() {
            if let Some(kind) = self.decide(next) {
                let head = std::mem::take(&mut self.head);
                if kind == Kind::Fence && self.fence.is_none() {
                    self.opening = head.first().map(|mark| Fence { mark, length: head.run() });
                }
                self.pipe = head.has_pipe();
                (self.line, self.chars) = (Some(kind), 0);
                return Some(Part::Begin(kind, head));
            }
            if !self.head.is_empty() || !next.is_whitespace() {
                self.head.push(next);
            } else {
                self.indent = self.indent.saturating_add(if next == '\t' { 4 } else { 1 });
            }
            *rest = &rest[next.len_utf8()..];
        }
        None
    }

    /// The line's kind, seen from the character before which it is read.
    fn decide(&self, next: char) -> Option<Kind> {
        if self.head.is_empty() && next.is_whitespace() {
            return (next == '\n').then_some(Kind::Blank);
        }
        // In a list, code is as far indented as the text of its entry.
        let may_fence = self.indent < 4 || self.list;
        match self.fence {
            Some(fence) if may_fence => kind_in_fence(&self.head, next, fence.mark, fence.length),
            Some(_) => Some(Kind::Code),
            None if self.indent >= 4 && !self.paragraph => Some(Kind::Code),
            None if self.table => Some(Kind::Table),
            None => kind(&self.head, next, may_fence),
        }
    }

    fn go_on<'a>(&mut self, kind: Kind, rest: &mut &'a str) -> Option<Part<'a>> {
        if rest.is_empty() {
            return None;
        }
        let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
        let (length, spills) = match kind {
            Kind::Prose => (line.len(), false),
            Kind::Rule => {
                let marks = line.find(|c: char| !is_mark(c) && !c.is_whitespace()).unwrap_or(line.len());
                let length = self.within(LONGEST_RULE, &line[..marks]);
                (length, length < line.len())
            }
            Kind::Fence if matches!(self.opening, Some(Fence { mark: '`', .. })) => {
                let length = self.within(LONGEST_LINE, &line[..line.find('`').unwrap_or(line.len())]);
                (length, length < line.len())
            }
            _ => {
                let length = self.within(LONGEST_LINE, line);
                (length, length < line.len())
            }
        };
        let (text, after) = rest.split_at(length);
        if length > 0 {
            *rest = after;
            if kind != Kind::Prose {
                self.chars += text.chars().count();
                self.pipe |= kind == Kind::Rule && text.contains('|');
            }
            return Some(Part::Text(kind, text));
        }
        if spills {
            (self.line, self.opening) = (Some(Kind::Prose), None);
            return Some(Part::Spill);
        }
        *rest = &after[1..];
        self.end(kind);
        Some(Part::End(kind))
    }

    /// How much of a line, in bytes, is within so many characters of it.
    fn within(&self, most: usize, line: &str) -> usize {
        let left = most.saturating_sub(self.chars);
        if line.len() <= left {
            return line.len();
        }
        line.char_indices().nth(left).map_or(line.len(), |(at, _)| at)
    }

    fn end(&mut self, kind: Kind) {
        match kind {
            Kind::Fence => self.fence = self.opening.take(),
            Kind::Blank => self.table = false,
            Kind::Rule => self.table = self.pipe,
            _ => {}
        }
        self.paragraph = !matches!(kind, Kind::Blank | Kind::Code);
        self.list = match kind {
            Kind::Item => true,
            Kind::Blank | Kind::Code => self.list,
            _ => self.list && self.indent > 0,
        };
        (self.line, self.indent) = (None, 0);
    }
}
