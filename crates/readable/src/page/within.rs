//! The text of a page, and the elements whose content is not read as it comes: `select` and formulas.

use html5ever::tokenizer::Tag;

use super::Page;
use crate::elements::{Gap, gap_around, is_space};

impl Page {
    /// Reads text where it stands.
    pub(crate) fn characters(&mut self, text: &str) {
        self.allowance.earn(text.len());
        if !self.hidden.is_empty() {
            return;
        }
        if self.in_title {
            self.title.push_str(text);
        } else if let Some(choice) = &mut self.choice {
            choice.characters(text);
        } else if let Some(formula) = &mut self.formula {
            formula.characters(text);
        } else if self.preformatted > 0 {
            self.begin_cell();
            self.text.preformatted(text);
        } else {
            self.flowing(text);
        }
    }

    /// Writes text whose white space only separates words.
    fn flowing(&mut self, text: &str) {
        let mut pieces = text.split(is_space).peekable();
        while let Some(piece) = pieces.next() {
            self.words(piece);
            if pieces.peek().is_some() {
                self.text.widen(Gap::Space);
            }
        }
    }

    /// Whether an open `select` or formula takes the element. An element that cannot be in it closes it.
    pub(super) fn is_within_field(&mut self, name: &str, tag: &Tag) -> bool {
        if let Some(choice) = &mut self.choice {
            if !matches!(name, "select" | "input" | "textarea") && !is_part_of_table(name) {
                choice.start(tag);
                return true;
            }
            self.close_choice();
            return name == "select";
        }
        if let Some(formula) = &mut self.formula {
            if gap_around(name) == Gap::None {
                formula.start(tag);
                return true;
            }
            self.close_formula();
        }
        false
    }

    /// Whether an open `select` or formula takes the end of an element. The end of a block closes a formula.
    pub(super) fn is_end_within_field(&mut self, name: &str) -> bool {
        if let Some(choice) = &mut self.choice {
            choice.end(name);
            if name == "select" || is_part_of_table(name) {
                self.close_choice();
            }
            return !is_part_of_table(name);
        }
        if let Some(formula) = &mut self.formula {
            formula.end(name);
            if name != "math" && gap_around(name) == Gap::None {
                return true;
            }
            self.close_formula();
        }
        false
    }

    pub(super) fn close_choice(&mut self) {
        if let Some(choice) = self.choice.take() {
            let chosen = choice.into_chosen();
            self.text.widen(Gap::Space); // also if nothing is chosen
            self.apart(&chosen.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }

    pub(super) fn close_formula(&mut self) {
        if let Some(formula) = self.formula.take() {
            let formula = formula.into_text();
            self.words(&formula.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
}

/// Whether the element is a table or a part of one, which ends a `select` that was not closed.
fn is_part_of_table(name: &str) -> bool {
    matches!(name, "table" | "caption" | "thead" | "tbody" | "tfoot" | "tr" | "td" | "th")
}
