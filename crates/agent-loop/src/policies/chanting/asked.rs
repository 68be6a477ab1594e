//! Decides how much repetition a person asked for: what the request says, and what the model read and may print.
//!
//! Only raw text is stored, at most about 28 KiB, and none of most runs: a request that has a count, and texts that
//! repeat themselves. It is examined when a repetition is found, never for each character. It is stored with the run.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::Chant;
use super::counts::Counts;
use super::data::is_data;
use super::read::{Read, plain};

/// Bytes at the beginning and at the end of a message whose numbers can be counts. Between them is what the person
/// pasted.
const INSTRUCTION: usize = 512;

/// Bytes of the person's messages that are kept.
const REQUEST: usize = 8 * INSTRUCTION;

/// Texts that are kept.
const TEXTS: usize = 3;

/// Shortest text that is searched for in a request wherever it stands. A shorter one must be quoted, or stand beside a
/// number or at the end.
const NAMED: usize = 8;

/// Longest unit that is a cell of a table or a matrix.
const CELL: u64 = 16;

/// Characters that a model may write beside a text that it prints.
const BESIDE: u64 = 512;

/// Most characters of repetition that are ever granted.
const MOST: u64 = 256 * 1024;

/// The person's words and the results of tools, as far as they can ask for a repetition.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(default)]
pub(super) struct Asked {
    /// The person's messages that have counts, each in a line of its own.
    request: String,
    counts: Counts,
    /// The newest texts that repeat themselves.
    texts: VecDeque<Read>,
}

impl Asked {
    /// Whether there is nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.request.is_empty() && self.texts.is_empty()
    }

    /// A message of the person. What it repeats of an earlier one is kept once.
    pub(super) fn message(&mut self, text: &str) {
        self.read_by_model(text);
        let whole = text.len() <= 2 * INSTRUCTION;
        let (head, tail) = if whole { (text, "") } else { ends(text, INSTRUCTION) };
        for part in [head, tail].map(str::trim) {
            let counts = Counts::of(part);
            if counts == Counts::default() || self.request.contains(part) {
                continue;
            }
            self.counts = self.counts.or(counts);
            if self.request.len() + part.len() < REQUEST {
                self.request.extend([part, "\n"]);
            }
        }
    }

    /// A text that the model reads: a result of a tool.
    pub(super) fn read_by_model(&mut self, text: &str) {
        let Some(read) = Read::of(text).filter(|read| self.texts.back() != Some(read)) else { return };
        if self.texts.len() == TEXTS {
            self.texts.pop_front();
        }
        self.texts.push_back(read);
    }

    /// The number of characters that may be repeated like this.
    pub(super) fn granted(&self, chant: &Chant) -> u64 {
        (self.counted(chant).max(self.read(chant))).min(MOST)
    }

    /// By a count in the request. Half as much again is still taken for it.
    fn counted(&self, chant: &Chant) -> u64 {
        let (values, is_row) = values(&chant.unit);
        let size = (chant.size / values).max(1);
        let count = if size <= CELL { self.counts.cells } else { self.counts.items };
        let rows = if is_row { self.counts.rows.saturating_mul(chant.size) } else { 0 };
        let most = count.saturating_mul(size).max(rows) / 2 * 3;
        let sample = if chant.unit.len() > chant.quote.len() { &chant.unit } else { &chant.quote };
        if most >= chant.fresh && (is_data(sample) || self.names(&chant.unit)) { most } else { 0 }
    }

    /// By a text that repeats itself and that the model has read: it may print all of it.
    fn read(&self, chant: &Chant) -> u64 {
        let texts = self.texts.iter().filter(|read| read.contains_several(&chant.quote));
        let all: u64 = texts.map(|read| read.length as u64).sum();
        if all == 0 { 0 } else { all + all / 4 + BESIDE }
    }

    /// Whether the request contains this unit. The unit may begin anywhere in what is repeated.
    fn names(&self, unit: &str) -> bool {
        let (request, unit) = (plain(&self.request).to_lowercase(), unit.to_lowercase());
        if !unit.contains(char::is_alphanumeric) {
            return !unit.is_ascii() && request.contains(unit.trim()); // an emoji
        }
        let twice = unit.repeat(2);
        let turned = unit.char_indices().map(|(at, _)| twice[at..at + unit.len()].trim_matches(is_mark));
        turned.filter(|words| !words.is_empty()).any(|words| {
            let long = words.chars().count() >= NAMED && (words.contains(' ') || !words.is_ascii());
            request.match_indices(words).any(|(at, _)| long || is_singled_out(&request, at, at + words.len()))
        })
    }
}

/// The number of equal values of which a unit consists, and whether it is a row of them, like one of a matrix of zeros.
fn values(unit: &str) -> (u64, bool) {
    let mut words = unit.split(|c: char| !c.is_alphanumeric() && c != '.').filter(|word| !word.is_empty());
    let count = words.clone().count() as u64;
    if count > 1 && words.next().is_some_and(|first| words.all(|word| word == first)) {
        return (count, true);
    }
    let mut solid = unit.chars().filter(|c| !c.is_whitespace());
    let length = solid.clone().count() as u64;
    let uniform = solid.next().is_some_and(|first| solid.all(|c| c == first));
    (if uniform { length } else { 1 }, false)
}

fn is_mark(c: char) -> bool {
    !c.is_alphanumeric()
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`' | '“' | '”' | '„' | '«' | '»' | '‘' | '’' | '「' | '」' | '『' | '』')
}

/// Whether a short text at this place is what the request is about: quoted, beside a number, or its last word.
fn is_singled_out(request: &str, start: usize, end: usize) -> bool {
    let (before, after) = (&request[..start], &request[end..]);
    let part_of_word = |beside: Option<char>| beside.is_some_and(|c| c.is_alphabetic() && c.is_ascii());
    if part_of_word(before.chars().next_back()) || part_of_word(after.chars().next()) {
        return false;
    }
    let marked = after.trim_start_matches(|c: char| is_mark(c) && !is_quote(c) && !c.is_whitespace());
    let quoted = before.ends_with(is_quote) && marked.starts_with(is_quote);
    let counted = before.trim_end().ends_with(char::is_numeric) || after.trim_start().starts_with(char::is_numeric);
    quoted || counted || after.trim_matches(is_mark).is_empty()
}

/// The beginning and the end of a text, of so many bytes each at most.
fn ends(text: &str, bytes: usize) -> (&str, &str) {
    (&text[..text.floor_char_boundary(bytes)], &text[text.ceil_char_boundary(text.len() - bytes)..])
}
