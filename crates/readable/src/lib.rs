//! Converts HTML to readable text: a pure function over the tokens of a page.
//!
//! It builds no tree, because a tree of hostile markup takes time quadratic in its depth. It reads the tokens once, in
//! order, and counts the surrounding elements that matter (hidden, preformatted, link, list, table). It omits scripts,
//! styles and elements that are marked as hidden, because a person would not see them either.
//!
//! **Does not know**: requests, addresses that may be read, tools, or models.

mod allowance;
mod elements;
mod fields;
mod links;
mod lists;
mod math;
mod page;
mod sink;
mod strikes;
mod tables;
mod text;

use std::time::{Duration, Instant};

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{BufferQueue, Tokenizer, TokenizerOpts};
use url::Url;

use sink::Sink;

/// Number of bytes for the tokenizer per step. The time limit is checked between steps.
const PIECE_BYTES: usize = 8 * 1024;

/// A page as text.
#[derive(Debug, PartialEq, Eq)]
pub struct Readable {
    /// The title; empty if there is none.
    pub title: String,
    /// The text. Links are written as `[1]`.
    pub text: String,
    /// The distinct targets of the links, in order.
    pub links: Vec<String>,
    /// Whether the conversion took too long and the text ends early.
    pub cut: bool,
}

/// Converts a page with the URL `base` to text, as far as possible within the time limit. CPU-bound: not for an async
/// thread.
///
/// # Errors
/// None: only a build without the feature `web` refuses a page.
pub fn readable(html: &str, base: &Url, limit: Duration) -> Result<Readable, &'static str> {
    let begun = Instant::now();
    let tokenizer = Tokenizer::new(Sink::new(base.clone()), TokenizerOpts::default());
    let input = BufferQueue::default();
    let mut rest = html;
    while !rest.is_empty() && begun.elapsed() < limit {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
        input.push_back(StrTendril::from_slice(piece));
        // The sink never requests the execution of a script, so each call consumes the whole piece.
        let _ = tokenizer.feed(&input);
        rest = after;
    }
    if rest.is_empty() {
        tokenizer.end();
    }
    Ok(tokenizer.sink.finish(!rest.is_empty()))
}

#[cfg(test)]
mod tests;
