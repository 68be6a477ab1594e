//! The filled fields of a form (AcroForm): a line for each, with its label and its value.
//!
//! Source: ISO 32000-2, 12.7 (forms).

use std::collections::HashSet;
use std::slice::Iter;

use pdf_extract::{Dictionary, Document, Object};

use super::field::{Field, MAX_DEPTH};
use super::source::Source;
use super::value;

const TITLE: &str = "Form fields:\n";
const XFA: &str = "(The form has data in XFA, which is not read.)\n";
const INCOMPLETE: &str = "(The form has more fields, which are not read.)\n";

/// The part of the text that shows the form; empty if no field has a value.
#[derive(Debug, Default)]
pub(super) struct Section {
    pub(super) text: String,
    /// Fields with a value.
    pub(super) fields: usize,
    /// Whether fields were left out.
    pub(super) is_cut: bool,
}

/// Fields that are not visited yet, below one field.
struct Level<'a> {
    rest: Iter<'a, Object>,
    above: Option<Field<'a>>,
}

/// Reads the form. Stops after the field that exceeds `max_bytes`.
pub(super) fn read(document: &Document, max_bytes: usize) -> Section {
    let mut source = Source::new(document, max_bytes);
    let mut section = Section::default();
    let catalog = document.catalog().ok();
    let Some(form) = catalog.and_then(|catalog| source.dictionary(catalog, b"AcroForm")) else { return section };
    let roots = source.list(form, b"Fields");
    walk(&mut source, roots, max_bytes, &mut section);
    section.is_cut |= source.is_exhausted();
    if section.fields == 0 && source.get(form, b"XFA").is_some() {
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

/// Visits each field once, in the order of the file, without recursion.
fn walk<'a>(source: &mut Source<'a>, roots: &'a [Object], max_bytes: usize, section: &mut Section) {
    let mut seen = HashSet::new();
    let mut levels = vec![Level { rest: roots.iter(), above: None }];
    while let Some(level) = levels.last_mut() {
        let Some(object) = level.rest.next() else {
            levels.pop();
            continue;
        };
        if !source.step() || section.text.len() > max_bytes {
            section.is_cut = true;
            return;
        }
        if object.as_reference().is_ok_and(|id| !seen.insert(id)) {
            continue;
        }
        let Some(Ok(node)) = source.resolved(object).map(Object::as_dict) else { continue };
        let field = match &level.above {
            Some(_) if !is_field(node) => continue, // a widget among fields
            Some(above) => Field::new(source, node, Some(above)),
            None => Field::root(source, node),
        };
        if !has_fields(source, &field) {
            section.add(source, &field);
        } else if levels.len() < MAX_DEPTH {
            levels.push(Level { rest: field.kids.iter(), above: Some(field) });
        } else {
            section.is_cut = true;
        }
    }
}

/// Whether a kid is a field of its own: a widget has no name and nothing below it.
fn is_field(node: &Dictionary) -> bool {
    node.has(b"T") || node.has(b"Kids")
}

fn has_fields<'a>(source: &mut Source<'a>, field: &Field<'a>) -> bool {
    field
        .kids
        .iter()
        .any(|kid| source.step() && source.resolved(kid).is_some_and(|kid| kid.as_dict().is_ok_and(is_field)))
}

impl Section {
    /// Adds the line of a field that has a value. Further lines of the value are indented, so that none looks like a field.
    fn add<'a>(&mut self, source: &mut Source<'a>, field: &Field<'a>) {
        let Some(value) = value::shown(source, field) else { return };
        let lines: Vec<&str> = value.trim().lines().map(str::trim_end).collect();
        if lines.iter().all(|line| line.is_empty()) {
            return;
        }
        self.fields += 1;
        self.text.push_str(&format!("{}: {}\n", field.label(source), lines.join("\n  ")));
    }
}
