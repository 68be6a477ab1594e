//! The visit of all fields, each once. The author of the file may have linked them in circles.

use std::collections::HashSet;
use std::slice::Iter;

use pdf_extract::{Dictionary, Object};

use super::field::{Field, MAX_DEPTH};
use super::section::Section;
use super::source::Source;

/// A list of fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The fields of the form.
    Form,
    /// The annotations of a page: widgets, links, comments.
    Page,
}

/// The visit of all fields.
pub(super) struct Walk<'a> {
    pub(super) source: Source<'a>,
    max_bytes: usize,
    /// Fields that were visited, by their address in the document.
    seen: HashSet<*const Dictionary>,
    pub(super) section: Section,
}

/// Fields that are not visited yet, below one field.
struct Level<'a> {
    rest: Iter<'a, Object>,
    above: Option<Field<'a>>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(source: Source<'a>, max_bytes: usize) -> Self {
        Self { source, max_bytes, seen: HashSet::new(), section: Section::default() }
    }

    /// Visits each field once, in the order of the file, without recursion.
    pub(super) fn visit(&mut self, place: Place, roots: &'a [Object]) {
        let mut levels = vec![Level { rest: roots.iter(), above: None }];
        while let Some(level) = levels.last_mut() {
            let Some(object) = level.rest.next() else {
                levels.pop();
                continue;
            };
            if !self.source.step() || self.section.text.len() > self.max_bytes {
                self.section.is_cut = true;
                return;
            }
            let Some(Ok(node)) = self.source.resolved(object).map(Object::as_dict) else { continue };
            let node = match &level.above {
                Some(_) if !self.source.is_field(node) => continue, // a widget among fields
                Some(_) => node,
                None if place == Place::Page && self.source.name(node, b"Subtype") != Some(b"Widget") => continue,
                None => self.owner(node),
            };
            if !self.seen.insert(node) {
                continue;
            }
            let field = match &level.above {
                Some(above) => Field::new(&mut self.source, node, Some(above)),
                None => Field::root(&mut self.source, node),
            };
            if !self.has_fields(&field) {
                self.section.add(&mut self.source, &field);
            } else if levels.len() < MAX_DEPTH {
                levels.push(Level { rest: field.kids.iter(), above: Some(field) });
            } else {
                self.section.is_cut = true;
            }
        }
    }

    /// The field that a widget shows: the next one above it. A widget with a value of its own that is not listed by the
    /// node above counts as a field.
    fn owner(&mut self, mut node: &'a Dictionary) -> &'a Dictionary {
        for _ in 0..MAX_DEPTH {
            if self.source.is_field(node) {
                break;
            }
            let Some(above) = self.source.dictionary(node, b"Parent") else { break };
            if node.has(b"V") && !self.has_kid(above, node) {
                break;
            }
            node = above;
        }
        node
    }

    fn has_kid(&mut self, above: &'a Dictionary, node: &Dictionary) -> bool {
        let source = &mut self.source;
        let mut kids = source.list(above, b"Kids").iter();
        kids.any(|kid| source.step() && source.resolved(kid).is_some_and(|kid| is_node(kid, node)))
    }

    fn has_fields(&mut self, field: &Field<'a>) -> bool {
        let source = &mut self.source;
        field.kids.iter().any(|kid| {
            let kid = if source.step() { source.resolved(kid) } else { None };
            kid.and_then(|kid| kid.as_dict().ok()).is_some_and(|kid| source.is_field(kid))
        })
    }
}

fn is_node(object: &Object, node: &Dictionary) -> bool {
    object.as_dict().is_ok_and(|object| std::ptr::eq(object, node))
}
