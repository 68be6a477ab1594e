//! HTML to text that is good to read: a pure function over the tokens of a page.
//!
//! No tree is built. A tree of hostile markup costs time by the square of its depth; tokens are taken once, in order, and
//! what has to be known about the elements around them (hidden, preformatted, in a link) is counted along. Scripts,
//! styles and everything marked as hidden are left away, since a person looking at the page would not read them either.

mod sink;

use std::time::{Duration, Instant};

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{BufferQueue, Tokenizer, TokenizerOpts};
use url::Url;

use sink::Sink;

/// How much of a page is given to the tokenizer at a time, in bytes; the time is looked at in between.
const PIECE_BYTES: usize = 8 * 1024;

/// A page as text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Readable {
    /// Its title; empty: it has none.
    pub(super) title: String,
    /// Its text, links as `[1]`.
    pub(super) text: String,
    /// Where the links lead, in order, each once.
    pub(super) links: Vec<String>,
    /// Whether it took too long and ends early.
    pub(super) cut: bool,
}

/// The readable text of a page that was found at `base`, as far as it can be had in this time. Takes processor time: not
/// for an async thread.
pub(super) fn readable(html: &str, base: &Url, limit: Duration) -> Readable {
    let begun = Instant::now();
    let tokenizer = Tokenizer::new(Sink::new(base.clone()), TokenizerOpts::default());
    let input = BufferQueue::default();
    let mut rest = html;
    while !rest.is_empty() && begun.elapsed() < limit {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
        input.push_back(StrTendril::from_slice(piece));
        // The sink never asks for a script to be run, so each call takes the whole piece.
        let _ = tokenizer.feed(&input);
        rest = after;
    }
    if rest.is_empty() {
        tokenizer.end();
    }
    tokenizer.sink.finish(!rest.is_empty())
}

#[cfg(test)]
mod tests;
