//! Formulas: the TeX source if the page has it, else the text.

use html5ever::tokenizer::Tag;

use super::elements::attribute;

/// An open `math` element.
#[derive(Default)]
pub(super) struct Formula {
    tex: String,
    text: String,
    annotation: Annotation,
}

#[derive(Default, PartialEq, Eq)]
enum Annotation {
    #[default]
    None,
    Tex,
    Other,
}

impl Formula {
    pub(super) fn new(tag: &Tag) -> Self {
        let tex = attribute(tag, "alttext").map(str::trim).unwrap_or_default().to_owned();
        Self { tex, ..Self::default() }
    }

    /// Begins an element within the formula.
    pub(super) fn start(&mut self, tag: &Tag) {
        // Without the space, the fraction of 1 and 2 would read as 12.
        self.text.push(' ');
        if tag.self_closing {
            return;
        }
        match &*tag.name {
            "annotation" => {
                let is_tex = attribute(tag, "encoding").is_some_and(|of| of.trim().eq_ignore_ascii_case(TEX));
                // The attribute and the first source take precedence.
                let is_first = self.tex.is_empty();
                self.annotation = if is_tex && is_first { Annotation::Tex } else { Annotation::Other };
            }
            "annotation-xml" => self.annotation = Annotation::Other,
            _ => {}
        }
    }

    pub(super) fn end(&mut self, name: &str) {
        if matches!(name, "annotation" | "annotation-xml") {
            self.annotation = Annotation::None;
        }
    }

    pub(super) fn characters(&mut self, text: &str) {
        match self.annotation {
            Annotation::None => self.text.push_str(text),
            Annotation::Tex => self.tex.push_str(text),
            Annotation::Other => {}
        }
    }

    /// The formula in one line.
    pub(super) fn into_text(self) -> String {
        if self.tex.trim().is_empty() { self.text } else { self.tex }
    }
}

const TEX: &str = "application/x-tex";
