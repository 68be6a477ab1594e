//! A field of a form: its name, its label, and what it inherits.
//!
//! Source: ISO 32000-2, 12.7.4 (field dictionaries).

use pdf_extract::{Dictionary, Object};

use super::source::Source;

/// Deepest field below the list of the form. 32: names of real forms have up to ten parts.
pub(super) const MAX_DEPTH: usize = 32;

/// Longest label, in characters. 200: a writer may put a help text there.
const LABEL_MAX_CHARS: usize = 200;

/// A field with what it inherits.
#[derive(Clone)]
pub(super) struct Field<'a> {
    pub(super) node: &'a Dictionary,
    /// The names of the field and of those above it, joined by dots.
    name: String,
    pub(super) kind: Option<&'a [u8]>,
    pub(super) flags: i64,
    pub(super) value: Option<&'a Object>,
    pub(super) options: &'a [Object],
    /// Fields below this one, or the places where it is shown (widgets).
    pub(super) kids: &'a [Object],
}

impl<'a> Field<'a> {
    /// A field of the form's list. Some writers list fields there that have others above them.
    pub(super) fn root(source: &mut Source<'a>, node: &'a Dictionary) -> Self {
        let mut chain = vec![node];
        while let Some(above) = source.dictionary(chain[chain.len() - 1], b"Parent") {
            let is_known = chain.iter().any(|known| std::ptr::eq(*known, above));
            if is_known || chain.len() > MAX_DEPTH || !source.step() {
                break;
            }
            chain.push(above);
        }
        let top = Self::new(source, chain[chain.len() - 1], None);
        chain.iter().rev().skip(1).fold(top, |above, node| Self::new(source, node, Some(&above)))
    }

    /// A field below another one.
    pub(super) fn new(source: &mut Source<'a>, node: &'a Dictionary, above: Option<&Self>) -> Self {
        let own = source.get(node, b"T").and_then(|name| source.text(name)).unwrap_or_default();
        let name = match above {
            Some(above) if own.trim().is_empty() => above.name.clone(),
            Some(above) if !above.name.is_empty() => one_line(&format!("{}.{own}", above.name)),
            _ => one_line(&own),
        };
        let options = source.list(node, b"Opt");
        let flags = source.get(node, b"Ff").and_then(|flags| flags.as_i64().ok());
        Self {
            node,
            name,
            kind: source.name(node, b"FT").or(above.and_then(|above| above.kind)),
            flags: flags.or(above.map(|above| above.flags)).unwrap_or_default(),
            value: source.get(node, b"V").or(above.and_then(|above| above.value)),
            options: if options.is_empty() { above.map_or(&[], |above| above.options) } else { options },
            kids: source.list(node, b"Kids"),
        }
    }

    /// The label that a reader shows to a person, or else the name.
    pub(super) fn label(&self, source: &mut Source<'a>) -> String {
        let shown = source.get(self.node, b"TU").and_then(|label| source.text(label)).map(|label| one_line(&label));
        match shown.as_deref().map(|label| label.trim_end_matches([':', ' '])) {
            Some(label) if !label.is_empty() => label.to_owned(),
            _ if self.name.is_empty() => "(unnamed)".to_owned(),
            _ => self.name.clone(),
        }
    }
}

fn one_line(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(LABEL_MAX_CHARS) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}
