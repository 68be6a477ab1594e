//! The fields of a form, as far as a person sees their values.

use html5ever::tokenizer::Tag;

use super::elements::attribute;

/// The box of an input that is on or off; `None` for other inputs.
pub(super) fn tick(tag: &Tag) -> Option<&'static str> {
    let kind = attribute(tag, "type")?.trim();
    let is_tick = kind.eq_ignore_ascii_case("checkbox") || kind.eq_ignore_ascii_case("radio");
    is_tick.then(|| if attribute(tag, "checked").is_some() { "[x]" } else { "[ ]" })
}

/// An open `select`. Only its chosen options are read.
pub(super) struct Choice {
    is_multiple: bool,
    is_in_chosen: bool,
    chosen: String,
}

impl Choice {
    pub(super) fn new(tag: &Tag) -> Self {
        let is_multiple = attribute(tag, "multiple").is_some();
        Self { is_multiple, is_in_chosen: false, chosen: String::new() }
    }

    /// Begins an element within the `select`.
    pub(super) fn start(&mut self, tag: &Tag) {
        if matches!(&*tag.name, "option" | "optgroup") {
            self.is_in_chosen = &*tag.name == "option" && attribute(tag, "selected").is_some();
            if !self.is_in_chosen {
                return;
            }
            // Of several chosen options, a browser shows the last, unless several can be chosen.
            if !self.is_multiple {
                self.chosen.clear();
            } else if !self.chosen.is_empty() {
                self.chosen.truncate(self.chosen.trim_end().len());
                self.chosen.push_str(", ");
            }
        }
    }

    pub(super) fn end(&mut self, name: &str) {
        if matches!(name, "option" | "optgroup") {
            self.is_in_chosen = false;
        }
    }

    pub(super) fn characters(&mut self, text: &str) {
        if self.is_in_chosen {
            self.chosen.push_str(text);
        }
    }

    pub(super) fn into_chosen(self) -> String {
        self.chosen
    }
}
