//! Keeps what a model has read and may print, if it repeats itself. The test is cheap, since every result is asked.

use serde::{Deserialize, Serialize};

/// Bytes of a text that are kept. Of a longer one, so many parts are.
const TEXT: usize = PARTS * PART;
const PARTS: usize = 4;
const PART: usize = 2048;

/// Parts of a text that are searched for repetition.
const SEARCHED: usize = 32;

/// Occurrences in a text that make it repetitive itself.
const OCCURRENCES: usize = 3;

/// Lines that equal one of the four lines before, in a text that repeats itself.
const EQUAL_LINES: usize = 8;
const CYCLE: usize = 4;

/// Bytes that are searched for in the part around them.
const SAMPLE: usize = 50;

/// A text that repeats itself and that the model has read.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub(super) struct Read {
    parts: String,
    /// Length of the whole text, in bytes.
    pub(super) length: usize,
}

impl Read {
    /// `None`: the text does not repeat itself.
    pub(super) fn of(text: &str) -> Option<Self> {
        let repetitive = repetitive_parts(text);
        let parts = match (repetitive.is_empty(), text.len() <= TEXT) {
            (true, _) if !has_equal_lines(text) => return None,
            (_, true) => text.to_owned(),
            (true, false) => {
                let step = (text.len() - PART) / (PARTS - 1);
                (0..PARTS).map(|at| part(text, at * step)).collect::<Vec<_>>().join("\n")
            }
            (false, false) => repetitive.join("\n"),
        };
        Some(Self { parts, length: text.len() })
    }

    /// Whether the text contains this one several times, without overlap; with or without numbers before its lines.
    pub(super) fn contains_several(&self, wanted: &str) -> bool {
        let wanted = wanted.trim();
        let several = |text: &str| text.matches(wanted).nth(OCCURRENCES - 1).is_some();
        let bare = || self.parts.lines().map(without_number).collect::<Vec<_>>().join(" ");
        !wanted.is_empty() && (several(&plain(&self.parts)) || several(&plain(&bare())))
    }
}

/// The part of a text that begins here.
fn part(text: &str, start: usize) -> &str {
    &text[text.floor_char_boundary(start)..text.floor_char_boundary(start + PART)]
}

/// The first parts of a text in which the characters in the middle come several times.
fn repetitive_parts(text: &str) -> Vec<&str> {
    let repeats = |part: &&str| {
        let middle = part.floor_char_boundary(part.len() / 2);
        let sample = &part[middle..part.floor_char_boundary(middle + SAMPLE)];
        sample.len() + 3 >= SAMPLE && part.matches(sample).nth(OCCURRENCES - 1).is_some()
    };
    (0..text.len()).step_by(PART).take(SEARCHED).map(|start| part(text, start)).filter(repeats).take(PARTS).collect()
}

/// Whether lines of a text equal the ones shortly before them.
fn has_equal_lines(text: &str) -> bool {
    let mut last = [""; CYCLE];
    let mut equal = 0;
    text.lines().map(|line| without_number(line).trim()).filter(|line| !line.is_empty()).any(|line| {
        equal += usize::from(last.contains(&line));
        last.rotate_right(1);
        last[0] = line;
        equal >= EQUAL_LINES
    })
}

/// A line without the number that a tool writes before it.
fn without_number(line: &str) -> &str {
    let rest = line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
    rest.strip_prefix(['\t', ':', '|', '→']).unwrap_or(line)
}

/// A text with each run of white space as one blank, as repetitions are compared.
pub(super) fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
