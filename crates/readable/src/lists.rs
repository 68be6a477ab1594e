//! The numbers of list items.

use html5ever::tokenizer::Tag;

use super::elements::{attribute, integer};

/// The open lists, and the lengths of the lists that count down to one.
#[derive(Default)]
pub(super) struct Lists {
    open: Vec<List>,
    lengths: Vec<i64>,
    /// Numbers to insert, by their place in the text.
    late: Vec<(usize, Late)>,
}

enum List {
    Bullets,
    Numbers {
        /// The number of the next item. `None` if it depends on the length of the list.
        next: Option<i64>,
        step: i64,
        /// The place in `lengths` of a list that counts down to one.
        length: Option<usize>,
    },
}

/// The mark before an item.
pub(super) enum Item {
    Bullet,
    Number(i64),
    Late(Late),
}

/// The number of an item of a list that counts down to one: the length of the list less the items before this one.
pub(super) struct Late {
    list: usize,
    before: i64,
}

impl Lists {
    /// Opens an `ol`, or a list without numbers.
    pub(super) fn open(&mut self, tag: &Tag) {
        let list = if &*tag.name == "ol" {
            let start = attribute(tag, "start").and_then(integer);
            let is_reversed = attribute(tag, "reversed").is_some();
            let length = (is_reversed && start.is_none()).then(|| {
                self.lengths.push(0);
                self.lengths.len() - 1
            });
            let next = if length.is_some() { None } else { Some(start.unwrap_or(1)) };
            List::Numbers { next, step: if is_reversed { -1 } else { 1 }, length }
        } else {
            List::Bullets
        };
        self.open.push(list);
    }

    pub(super) fn close(&mut self) {
        self.open.pop();
    }

    /// The white space before the mark of an item.
    pub(super) fn indent(&self) -> String {
        "  ".repeat(self.open.len().saturating_sub(1).min(8))
    }

    /// Counts an item.
    pub(super) fn item(&mut self, tag: &Tag) -> Item {
        let Some(List::Numbers { next, step, length }) = self.open.last_mut() else { return Item::Bullet };
        if let Some(value) = attribute(tag, "value").and_then(integer) {
            *next = Some(value);
        }
        let late = length.map(|list| {
            self.lengths[list] += 1;
            Late { list, before: self.lengths[list] - 1 }
        });
        match (*next, late) {
            (Some(number), _) => {
                *next = Some(number.saturating_add(*step));
                Item::Number(number)
            }
            (None, Some(late)) => Item::Late(late),
            (None, None) => Item::Bullet,
        }
    }

    /// Notes the place of a number in the text.
    pub(super) fn insert_late(&mut self, at: usize, number: Late) {
        self.late.push((at, number));
    }

    /// Inserts the numbers that were not known before. A page that was cut has shorter lists.
    pub(super) fn finish(&self, text: String) -> String {
        if self.late.is_empty() {
            return text;
        }
        let mut whole = String::with_capacity(text.len() + 4 * self.late.len());
        let mut begin = 0;
        for (at, late) in &self.late {
            whole.push_str(&text[begin..*at]);
            whole.push_str(&(self.lengths[late.list] - late.before).to_string());
            begin = *at;
        }
        whole + &text[begin..]
    }
}
