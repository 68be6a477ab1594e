//! Writes the parts of a page that stand apart: cells, list items, links and fields.

use html5ever::tokenizer::Tag;

use super::Page;
use crate::elements::{Gap, gap_around};
use crate::lists::Item;

impl Page {
    /// Requests the white space before or after an element.
    pub(super) fn space_around(&mut self, name: &str) {
        match name {
            // A paragraph or an empty line at the start of a cell does not leave the row.
            "p" | "div" | "br" if self.tables.is_at_start_of_cell() => return,
            "td" | "th" | "tr" if self.tables.is_end_in_row() => self.text.set_gap(Gap::None),
            "p" | "div" | "br" | "td" | "th" | "tr" => {}
            _ if gap_around(name) == Gap::None => return,
            _ => self.tables.block(),
        }
        self.text.widen(gap_around(name));
    }

    /// Writes words; in a new cell, the separators before them.
    pub(super) fn words(&mut self, words: &str) {
        if !words.is_empty() {
            self.begin_cell();
            self.text.words(words);
        }
    }

    /// Writes a mark at the beginning of a line, followed by a space.
    pub(super) fn mark(&mut self, mark: &str) {
        self.begin_cell();
        self.text.mark(mark);
    }

    /// Writes words between spaces.
    pub(super) fn apart(&mut self, words: &str) {
        if !words.is_empty() {
            self.text.widen(Gap::Space);
            self.words(words);
            self.text.widen(Gap::Space);
        }
    }

    pub(super) fn begin_cell(&mut self) {
        if let Some(count) = self.tables.separators(self.text.gap()) {
            self.text.separate(count);
        }
    }

    /// Writes the bullet or the number of a list item.
    pub(super) fn item(&mut self, tag: &Tag) {
        self.begin_cell();
        let indent = self.lists.indent();
        let mark = match self.lists.item(tag) {
            Item::Bullet => "-".to_owned(),
            Item::Number(number) => {
                let mark = format!("{number}.");
                // Long numbers of short items cost more than the page.
                if self.allowance.take(mark.len(), 1) == mark.len() { mark } else { "-".to_owned() }
            }
            Item::Late(number) => {
                let at = self.text.indent(&indent);
                self.lists.insert_late(at, number);
                return self.text.mark(".");
            }
        };
        self.text.mark(&(indent + &mark));
    }

    pub(super) fn close_link(&mut self) {
        if let Some(reference) = self.links.close() {
            // The end of a block within the link does not part the reference from it. A link without text keeps its
            // row.
            if !self.tables.is_at_start_of_cell() {
                self.text.set_gap(Gap::Space);
            }
            self.text.widen(Gap::Space);
            self.words(&reference);
        }
    }
}
