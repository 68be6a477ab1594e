//! Reads a source as records: lines with one JSON value each, or whole JSON documents.

use std::io::{BufRead, Read};

use serde_json::{Deserializer, Value};

use super::ImportError;
use crate::reader::LINE_MAX_BYTES;

/// Longest document that is not one value a line. 512 MiB: it is in memory as a whole, a few times.
const DOCUMENT_MAX_BYTES: u64 = 512 * 1024 * 1024;

/// The kind of a line of more than [`LINE_MAX_BYTES`].
const TOO_LONG: &str = "line longer than 16 MiB";

const BOM: &[u8] = "\u{feff}".as_bytes();

/// One line of a source.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    /// A JSON value.
    Value(Value),
    /// A line that is none, with the kind under which it is counted.
    Broken(&'static str),
}

/// A source after its form was found.
pub(super) enum Records<R> {
    /// One value a line. The lines that were read to find the form come first.
    Lines(std::vec::IntoIter<Line>, Lines<R>),
    /// Whole documents.
    Documents(Vec<Value>),
}

/// Finds the form of a source. `is_record`: whether a value can stand alone on a line.
///
/// # Errors
/// The source cannot be read, is a document that is too long, or is not JSON.
pub(super) fn records<R: BufRead>(source: R, is_record: fn(&Value) -> bool) -> Result<Records<R>, ImportError> {
    let mut lines = Lines { source, buffer: Vec::new(), number: 0 };
    let Some(first) = lines.raw()? else { return Ok(Records::Documents(Vec::new())) };
    if let Line::Value(first) = first {
        return Ok(match lines.read()? {
            None => Records::Documents(vec![first]),
            Some(second) => Records::Lines(vec![Line::Value(first), second].into_iter(), lines),
        });
    }
    let (mut text, line) = (std::mem::take(&mut lines.buffer), lines.number);
    let rest = &mut lines.source;
    rest.take(DOCUMENT_MAX_BYTES + 1).read_to_end(&mut text).map_err(|error| ImportError::Io(error.to_string()))?;
    if text.len() as u64 > DOCUMENT_MAX_BYTES {
        return Err(ImportError::TooLong(DOCUMENT_MAX_BYTES / 1024 / 1024));
    }
    match Deserializer::from_slice(text.strip_prefix(BOM).unwrap_or(&text))
        .into_iter()
        .collect::<Result<Vec<Value>, _>>()
    {
        Ok(values) => Ok(Records::Documents(values)),
        Err(error) => {
            let mut inner = Lines { source: text.as_slice(), buffer: Vec::new(), number: 0 };
            let mut found = Vec::new();
            while let Some(line) = inner.read()? {
                found.push(line);
            }
            let is_lines = found.iter().any(|line| matches!(line, Line::Value(value) if is_record(value)));
            if is_lines { Ok(Records::Lines(found.into_iter(), lines)) } else { Err(not_json(line - 1, &error)) }
        }
    }
}

/// `before`: blank lines before the document.
fn not_json(before: usize, error: &serde_json::Error) -> ImportError {
    ImportError::NotJson {
        line: error.line() + before,
        column: error.column(),
        what: error.to_string().split(" at line ").next().unwrap_or_default().to_owned(),
    }
}

/// Reads lines, one in memory at a time.
pub(super) struct Lines<R> {
    source: R,
    buffer: Vec<u8>,
    number: usize,
}

impl<R: BufRead> Lines<R> {
    /// The next line that is not blank.
    pub(super) fn read(&mut self) -> Result<Option<Line>, ImportError> {
        let line = self.raw()?;
        if line == Some(Line::Broken(TOO_LONG)) {
            self.source.skip_until(b'\n').map_err(|error| ImportError::Io(error.to_string()))?;
        }
        Ok(line)
    }

    /// The same, but of a line that is too long only the beginning is read. The buffer keeps the bytes of the line.
    fn raw(&mut self) -> Result<Option<Line>, ImportError> {
        loop {
            self.buffer.clear();
            self.number += 1;
            let most = LINE_MAX_BYTES as u64 + 1;
            let read = self.source.by_ref().take(most).read_until(b'\n', &mut self.buffer);
            let count = read.map_err(|error| ImportError::Io(error.to_string()))?;
            if count == 0 {
                return Ok(None);
            }
            let is_whole = self.buffer.ends_with(b"\n");
            let text = self.buffer.strip_prefix(BOM).unwrap_or(&self.buffer).trim_ascii();
            if !is_whole && self.buffer.len() as u64 == most {
                return Ok(Some(Line::Broken(TOO_LONG)));
            }
            if !text.is_empty() {
                return Ok(Some(serde_json::from_slice(text).map_or(Line::Broken("broken line"), Line::Value)));
            }
        }
    }
}
