//! Splits streamed Markdown into lines and their kinds: [`Structure::next`] cuts a text into [`Part`]s.
//!
//! The kind of a line is decided at its beginning, from a few characters that are held back until then, and from the
//! blocks that earlier lines left open: a fence, a list, a table, a paragraph. The result does not depend on how the
//! text was cut into pieces, because everything known about an unfinished line is in the state.

use super::head::{Head, Kind, is_mark, kind, kind_in_fence};

/// Longest line of code, of a table, of a list entry and so on, in characters. A longer line is read as prose from
/// there on. No person writes a table row of 4096 characters, but the rule that a stuck model writes below a heading
/// can be that long.
const LONGEST_LINE: usize = 4096;

/// The same for a rule. No terminal of a person is wider than 256 characters.
const LONGEST_RULE: usize = 256;

/// A piece of a line.
#[derive(Debug, PartialEq)]
pub(super) enum Part<'a> {
    /// A line begins. The head contains its first characters.
    Begin(Kind, Head),
    /// The next piece of the line, without its end.
    Text(Kind, &'a str),
    /// The line is too long for its kind. The rest of it is prose.
    Spill,
    /// The line ends.
    End(Kind),
}

/// The state of the text so far: the open blocks, and the line that is being read.
#[derive(Clone, Debug, PartialEq, Default)]
pub(super) struct Structure {
    /// The kind of the line. `None` until it is known; `head` then holds its first characters.
    line: Option<Kind>,
    head: Head,
    /// Blanks before the head. A tab counts as four.
    indent: usize,
    /// Characters of the line since its kind is known. Not counted for prose.
    chars: usize,
    /// A row of marks contains a `|`.
    pipe: bool,
    fence: Option<Fence>,
    /// The fence that the line opens, if the line ends as it must.
    opening: Option<Fence>,
    /// The line before is text that an indented line may continue: neither blank nor code.
    paragraph: bool,
    list: bool,
    table: bool,
}

/// Fenced code: the mark, and how many of them opened it. As many are needed to close it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fence {
    mark: char,
    length: u32,
}

impl Structure {
    /// Returns the next part of the text and moves `rest` behind it. `None`: everything is read.
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

    /// Decides the kind of the line from its head and the character that follows.
    fn decide(&self, next: char) -> Option<Kind> {
        if self.head.is_empty() && next.is_whitespace() {
            return (next == '\n').then_some(Kind::Blank);
        }
        // In a list, a fence may be indented as far as the text of its entry.
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

    /// The length, in bytes, of the part of `line` that is within the first `most` characters of the whole line.
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
