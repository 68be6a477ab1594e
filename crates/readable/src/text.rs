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
    /// Number of open elements that strike their text.
    struck: usize,
    /// Whether `~~` is written and not yet closed.
    is_mark_open: bool,
    script: Option<Script>,
}

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
        let is_behind = self.gap == Gap::None && self.text.chars().next_back().is_some_and(char::is_alphanumeric);
        self.flush();
        if self.struck > 0 && !self.is_mark_open {
            self.text.push_str("~~");
            self.is_mark_open = true;
        }
        match self.script.take() {
            // The reference of a footnote, such as `[1]`, is clear as it is.
            Some(Script::Super) if !words.starts_with('[') => self.text.push('^'),
            Some(Script::Sub) if is_behind => self.text.push('_'),
            _ => {}
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

    pub(super) fn strike(&mut self) {
        self.struck += 1;
    }

    pub(super) fn end_strike(&mut self) {
        self.struck = self.struck.saturating_sub(1);
        if self.struck == 0 {
            self.close_mark();
        }
    }

    /// Marks the next words as raised or lowered, or not: at the end of an element without words.
    pub(super) fn set_script(&mut self, script: Option<Script>) {
        self.script = script;
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
