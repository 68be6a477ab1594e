//! The text of a PDF: the words of its pages, and the filled fields of its form.
//!
//! **Does not know**: processes, limits of the machine, or attachments. `tools` calls it in a confined process.
//!
//! Reading order: here → `form` (the filled fields) → `walk` → `section` → `value` → `field` → `source` (bounded access
//! to objects) → `words` (encodings).

mod field;
mod form;
mod section;
mod source;
#[cfg(test)]
mod tests;
mod value;
mod walk;
mod words;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pdf_extract::{Document, PlainTextOutput, output_doc_page};
use serde::{Deserialize, Serialize};

use self::section::Section;

/// The part of the file that was read.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Pages of the document.
    pub pages: usize,
    /// Pages that were read.
    pub read: usize,
    /// Those of them that are broken, or need more memory than there is.
    pub broken: usize,
    /// Fields of the form that have a value.
    pub fields: usize,
    /// Whether a part of the text was left out, because it is longer than the limit.
    pub is_cut: bool,
}

/// Why a file has no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// It is broken, or no PDF.
    Broken,
    /// It is encrypted with a password that is not empty.
    Encrypted,
}

/// The text of the first pages, and after it the filled fields of the form. At most `max_bytes` together.
///
/// Needs up to a few hundred MiB and some seconds of processor time for a hostile file, and may end the process by a
/// lack of memory or of stack: call it in a process of its own.
///
/// # Errors
/// The file is no readable PDF.
pub fn text_of(file: &[u8], max_pages: usize, max_bytes: usize) -> Result<(Head, String), Unreadable> {
    let mut document = Document::load_mem(file).map_err(|_| Unreadable::Broken)?;
    if document.is_encrypted() {
        // Many files are encrypted with the empty password, which every program may use.
        document.decrypt("").map_err(|_| Unreadable::Encrypted)?;
    }
    // A panic costs the form, which counts as cut, and the pages are read.
    let lost = |_| Section { is_cut: true, ..Section::default() };
    let form = catch_unwind(AssertUnwindSafe(|| form::read(&document, max_bytes))).unwrap_or_else(lost);
    let (mut head, mut pages) = pages_of(&document, max_pages, max_bytes);
    let Section { text: mut fields, fields: number, is_cut } = form;
    head.fields = number;
    // The values that a person has filled in count more than a long text: they get half of the room if they need it.
    let room = max_bytes.saturating_sub(pages.len() + 2).max(max_bytes / 2);
    head.is_cut |= is_cut | cut(&mut fields, room);
    let taken = if fields.is_empty() { 0 } else { fields.len() + 2 };
    head.is_cut |= cut(&mut pages, max_bytes.saturating_sub(taken));
    let parts: Vec<&str> = [pages.trim_end(), fields.trim_end()].into_iter().filter(|part| !part.is_empty()).collect();
    Ok((head, parts.join("\n\n")))
}

/// The text of the first pages. Reading ends after the page that exceeds `max_bytes`.
fn pages_of(document: &Document, max_pages: usize, max_bytes: usize) -> (Head, String) {
    let pages: Vec<u32> = document.get_pages().into_keys().collect();
    let (mut text, mut head) = (String::new(), Head { pages: pages.len(), ..Head::default() });
    for page in pages.iter().take(max_pages) {
        if text.len() >= max_bytes {
            head.is_cut = true;
            break;
        }
        let mut page_text = Vec::new();
        // A broken page is left out, also one at which the library panics; the others are read.
        let read = || {
            let mut output = PlainTextOutput::new(&mut page_text as &mut dyn Write);
            output_doc_page(document, &mut output, *page).map_err(|error| error.to_string())
        };
        let outcome = catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err("the reader panicked".to_owned()));
        if let Err(error) = outcome {
            eprintln!("page {page}: {error}");
            head.broken += 1;
        }
        head.read += 1;
        text.push_str(String::from_utf8_lossy(&page_text).trim());
        text.push_str("\n\n");
    }
    text.truncate(text.trim_end().len());
    (head, text)
}

/// Shortens a text to `most` bytes. Returns whether it was longer.
fn cut(text: &mut String, most: usize) -> bool {
    let is_longer = text.len() > most;
    text.truncate(text.floor_char_boundary(most));
    is_longer
}
