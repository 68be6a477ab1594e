//! The filled fields of a form (AcroForm).
//!
//! Source: ISO 32000-2, 12.7 (forms).

use pdf_extract::Document;

use super::section::Section;
use super::source::Source;
use super::walk::{Place, Walk};

const TITLE: &str = "Form fields:\n";
const XFA: &str = "(The form has data in XFA, which is not read.)\n";
const INCOMPLETE: &str = "(The form has more fields, which are not read.)\n";

/// Reads the fields of the form and of the pages. Stops after the field that exceeds `max_bytes`.
pub(super) fn read(document: &Document, max_bytes: usize) -> Section {
    let Ok(catalog) = document.catalog() else { return Section::default() };
    let source = Source::new(document, max_bytes);
    let form = source.dictionary(catalog, b"AcroForm");
    let fields = form.map(|form| source.list(form, b"Fields")).unwrap_or_default();
    let mut walk = Walk::new(source, max_bytes);
    walk.visit(Place::Form, fields);
    // Some writers add a field to a page alone.
    for page in document.page_iter().filter_map(|page| document.get_dictionary(page).ok()) {
        let annotations = walk.source.list(page, b"Annots");
        walk.visit(Place::Page, annotations);
    }
    let Walk { source, mut section, .. } = walk;
    section.is_cut |= source.is_exhausted();
    if section.fields == 0 && form.is_some_and(|form| source.get(form, b"XFA").is_some()) {
        section.text.push_str(XFA);
    }
    if section.is_cut {
        section.text.push_str(INCOMPLETE);
    }
    if !section.text.is_empty() {
        section.text.insert_str(0, TITLE);
    }
    section
}
