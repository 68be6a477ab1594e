//! Writes the text of a page: white space, and the marks of struck, raised and lowered text.

use super::elements::Gap;

/// Whether text stands above or below the line.
#[derive(Clone, Copy)]
pub(super) enum Script {
    Super,
    Sub,
}

/// The text written so far, and the marks to write before the next word.
#[derive(Default)]
pub(super) struct Text {
    text: String,
    gap: Gap,
    /// Whether the next words are struck.
    is_struck: bool,
    /// Whether `~~` is written and not yet closed.
    is_mark_open: bool,
    script: Option<Script>,
    /// The byte behind the newest mark of raised or lowered text, until its element ends.
    script_at: Option<usize>,
    /// The place and the end of a raised or lowered number or word, which needs parentheses if another follows at once.
    loose: Option<(usize, usize)>,
}

/// Longest raised or lowered text that gets parentheses, in bytes: inserting one moves the text behind it.
const PARENTHESES_MAX: usize = 64;

impl Text {
    pub(super) fn gap(&self) -> Gap {
        self.gap
    }

    pub(super) fn widen(&mut self, gap: Gap) {
        if gap >= Gap::Cell {
            self.close_mark();
        }
        self.gap = self.gap.max(gap);
    }

    /// Replaces the white space before the next word.
    pub(super) fn set_gap(&mut self, gap: Gap) {
        self.gap = gap;
    }

    /// Writes the pending white space and marks, then the words.
    pub(super) fn words(&mut self, words: &str) {
        if words.is_empty() {
            return;
        }
        let is_close = self.gap == Gap::None;
        let is_base = |before: char| before.is_alphanumeric() || matches!(before, ')' | ']');
        let is_behind = is_close && self.text.chars().next_back().is_some_and(is_base);
        if let Some((at, end)) = self.loose.take() {
            let kinds = [char::is_numeric, char::is_alphabetic];
            let is_glued = kinds.iter().any(|is| self.text.ends_with(is) && words.starts_with(is));
            if is_glued && is_close && self.script.is_none() && end == self.text.len() {
                self.enclose(at);
            }
        }
        self.flush();
        if self.is_struck && !self.is_mark_open {
            self.text.push_str("~~");
            self.is_mark_open = true;
        }
        let mark = match self.script.take() {
            Some(Script::Super) => Some('^'),
            Some(Script::Sub) => is_behind.then_some('_'),
            None => None,
        };
        if let Some(mark) = mark {
            self.text.push(mark);
            self.script_at = Some(self.text.len());
        }
        self.text.push_str(words);
    }

    /// Writes text with its white space. A mark of struck text ends with its line.
    pub(super) fn preformatted(&mut self, text: &str) {
        for line in text.split_inclusive('\n') {
            let body = line.strip_suffix('\n').unwrap_or(line);
            if body.trim().is_empty() {
                self.flush();
                self.text.push_str(body);
            } else {
                self.words(body);
            }
            if body.len() < line.len() {
                self.close_mark();
                self.text.push('\n');
            }
        }
    }

    /// Writes a mark at the beginning of a line, followed by a space.
    pub(super) fn mark(&mut self, mark: &str) {
        self.flush();
        self.text.push_str(mark);
        self.gap = Gap::Space;
    }

    /// Begins a line with white space of its own. Returns the number of bytes so far.
    pub(super) fn indent(&mut self, indent: &str) -> usize {
        self.flush();
        self.text.push_str(indent);
        self.text.len()
    }

    /// Begins a new cell behind `count` others: writes a break between lines, then the separators.
    pub(super) fn separate(&mut self, count: usize) {
        if self.gap > Gap::Cell {
            self.flush();
        }
        self.gap = Gap::None;
        self.text.extend(std::iter::repeat_n(" | ", count));
    }

    /// Strikes the next words, or not.
    pub(super) fn set_struck(&mut self, is_struck: bool) {
        self.is_struck = is_struck;
        if !is_struck {
            self.close_mark();
        }
    }

    /// Marks the next words as raised or lowered.
    pub(super) fn begin_script(&mut self, script: Script) {
        self.script = Some(script);
    }

    /// Ends raised or lowered text. More than one word or number gets parentheses, but for a footnote such as `[1]`.
    pub(super) fn end_script(&mut self) {
        self.script = None;
        let Some(at) = self.script_at.take() else { return };
        let Some(content) = self.text.get(at..).filter(|content| content.len() <= PARENTHESES_MAX) else { return };
        if content.chars().all(char::is_alphanumeric) {
            self.loose = Some((at, self.text.len()));
        } else if !content.starts_with('[') {
            self.enclose(at);
        }
    }

    fn enclose(&mut self, at: usize) {
        self.text.insert(at, '(');
        self.text.push(')');
    }

    pub(super) fn finish(mut self) -> String {
        self.close_mark();
        self.text
    }

    fn close_mark(&mut self) {
        if std::mem::take(&mut self.is_mark_open) {
            self.text.push_str("~~");
        }
    }

    fn flush(&mut self) {
        let gap = std::mem::take(&mut self.gap);
        if self.text.is_empty() {
            return;
        }
        let lines = match gap {
            Gap::None => return,
            Gap::Space => return self.text.push(' '),
            Gap::Cell => return self.text.push_str(" | "),
            Gap::Line => 1,
            Gap::Paragraph => 2,
        };
        let there = self.text.bytes().rev().take(lines).take_while(|b| *b == b'\n').count();
        self.text.extend(std::iter::repeat_n('\n', lines - there));
    }
}
