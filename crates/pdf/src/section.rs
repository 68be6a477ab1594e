//! The part of the text that shows the form: a line for each field, with its label and its value.

use super::field::Field;
use super::source::Source;
use super::value::{self, Shown};

/// The part of the text that shows the form; empty if no field has a value.
#[derive(Debug, Default)]
pub(super) struct Section {
    pub(super) text: String,
    /// Fields with a value.
    pub(super) fields: usize,
    /// Whether fields were left out.
    pub(super) is_cut: bool,
}

impl Section {
    /// Adds the line of a field that has a value. Further lines of the value are indented, so that none looks like a
    /// field.
    pub(super) fn add<'a>(&mut self, source: &mut Source<'a>, field: &Field<'a>) {
        let Some(shown) = value::shown(source, field) else { return };
        let label = value::without_marks(&field.label(source));
        match shown {
            Shown::Text(text) if text.trim().is_empty() => return,
            Shown::Text(text) => {
                let lines: Vec<&str> = text.trim().lines().map(str::trim_end).collect();
                self.text.push_str(&format!("{label}: {}\n", lines.join("\n  ")));
            }
            Shown::Note(mark, note) => self.text.push_str(&format!("{label} {mark}: {note}\n")),
        }
        self.fields += 1;
    }
}
