//! Access to the objects of a document. All of it is bounded, because the author of the file may be hostile.

use pdf_extract::{Dictionary, Document, Object};

use super::words;

/// Most references from one to the next. 4: a writer needs one.
const MAX_HOPS: usize = 4;

/// Most nodes, options and values that are looked at. 200,000: a tax form with 100 lists of 1,000 entries each.
const MAX_STEPS: usize = 200_000;

/// Most bytes of strings that are decoded, in addition to four times the limit of the text. 4 MiB take 0.1 s.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Most bytes of all streams, as they are in the file. 64 KiB: a byte becomes at most about 1,400 bytes, which is 90
/// MiB of the memory of the process. A writer uses a stream for a long value only.
const MAX_STREAM_BYTES: usize = 64 * 1024;

/// A document with what is left of the limits.
pub(super) struct Source<'a> {
    document: &'a Document,
    value_bytes: usize,
    steps: usize,
    bytes: usize,
    stream_bytes: usize,
}

impl<'a> Source<'a> {
    /// `max_bytes`: the limit of the text.
    pub(super) fn new(document: &'a Document, max_bytes: usize) -> Self {
        // A character has one or two bytes in a PDF, and at least one in the text. 8: the mark of the encoding.
        let value_bytes = max_bytes.saturating_mul(2).saturating_add(8);
        let bytes = value_bytes.saturating_mul(2).saturating_add(MAX_BYTES);
        Self { document, value_bytes, steps: MAX_STEPS, bytes, stream_bytes: MAX_STREAM_BYTES }
    }

    /// Takes one step. Returns false if none is left.
    pub(super) fn step(&mut self) -> bool {
        let is_left = self.steps > 0;
        self.steps = self.steps.saturating_sub(1);
        is_left
    }

    /// Whether a limit was reached: something was not read.
    pub(super) fn is_exhausted(&self) -> bool {
        self.steps == 0 || self.bytes == 0
    }

    /// The object itself, if it is a reference. Null is as good as nothing.
    pub(super) fn resolved(&self, mut object: &'a Object) -> Option<&'a Object> {
        for _ in 0..MAX_HOPS {
            match object {
                Object::Reference(id) => object = self.document.objects.get(id)?,
                Object::Null => return None,
                other => return Some(other),
            }
        }
        None
    }

    /// An entry of a dictionary.
    pub(super) fn get(&self, from: &'a Dictionary, key: &[u8]) -> Option<&'a Object> {
        self.resolved(from.get(key).ok()?)
    }

    /// An entry of a dictionary that is a dictionary itself.
    pub(super) fn dictionary(&self, from: &'a Dictionary, key: &[u8]) -> Option<&'a Dictionary> {
        self.get(from, key)?.as_dict().ok()
    }

    /// An entry of a dictionary that is a list; empty if there is none.
    pub(super) fn list(&self, from: &'a Dictionary, key: &[u8]) -> &'a [Object] {
        self.get(from, key).and_then(|object| object.as_array().ok()).map_or(&[], Vec::as_slice)
    }

    /// An entry of a dictionary that is a name.
    pub(super) fn name(&self, from: &'a Dictionary, key: &[u8]) -> Option<&'a [u8]> {
        self.get(from, key)?.as_name().ok()
    }

    /// Whether a node is a field, and not a widget: a widget has no name, or an empty one, and nothing below it.
    pub(super) fn is_field(&self, node: &'a Dictionary) -> bool {
        let is_named = match self.get(node, b"T") {
            Some(Object::String(name, _)) => !words::is_empty(name),
            name => name.is_some(),
        };
        is_named || !self.list(node, b"Kids").is_empty()
    }

    /// A value as text: a string, a name, a number, or the content of a stream.
    pub(super) fn text(&mut self, object: &'a Object) -> Option<String> {
        match self.resolved(object)? {
            Object::Name(name) => Some(words::of_name(self.taken(name))),
            Object::String(bytes, _) => Some(words::of_string(self.taken(bytes))),
            Object::Integer(number) => Some(number.to_string()),
            Object::Real(number) => Some(number.to_string()),
            stream @ Object::Stream(_) => self.unpacked(stream),
            _ => None,
        }
    }

    /// The first bytes, as many as one value may have.
    fn taken<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let number = bytes.len().min(self.value_bytes).min(self.bytes);
        self.bytes -= number;
        &bytes[..number]
    }

    fn unpacked(&mut self, object: &'a Object) -> Option<String> {
        let stream = object.as_stream().ok()?;
        self.stream_bytes = self.stream_bytes.checked_sub(stream.content.len())?;
        // Each filter and each predictor multiplies the bytes once more.
        let is_plain = !stream.dict.has(b"Filter");
        let is_simple = stream.filters().is_ok_and(|filters| filters.len() == 1) && !stream.dict.has(b"DecodeParms");
        let content =
            if is_plain { stream.content.clone() } else { is_simple.then(|| stream.decompressed_content().ok())?? };
        Some(words::of_string(self.taken(&content)))
    }
}
