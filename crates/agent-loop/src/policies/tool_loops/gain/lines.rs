//! Digests of the lines of a text, in which numbers do not count.

use super::super::digest::{self, Digest};
use super::super::shapes;

/// The length that is read of a longer text, from its beginning and from its end, in bytes.
const PART: usize = 8 * 1024;

/// Most lines of a text that are compared. Of a longer text, the lines whose digests divide by a power of two are
/// taken: the same ones when it comes again.
const LINES: usize = 128;

/// Letters and numbers that make a line. Less is punctuation: a bracket, a bullet.
const LINE: usize = 2;

/// The digests of the lines of `text`, in order, without empty ones. A line break within a JSON text (`\n`) ends a line
/// too. Numbers, and words that consist of hexadecimal digits, are all the same. Spaces, quotes and the number at the
/// beginning of a line do not count.
pub(super) fn of(text: &str) -> Vec<u16> {
    let bytes = text.as_bytes();
    let mut lines = Vec::new();
    if bytes.len() <= 2 * PART {
        add(bytes, &mut lines);
    } else {
        add(&bytes[..PART], &mut lines);
        add(&bytes[bytes.len() - PART..], &mut lines);
    }
    if lines.len() > LINES {
        let every = (lines.len() / LINES).next_power_of_two() as u64;
        lines.retain(|line| line % every == 0);
    }
    lines.into_iter().map(|line| (line >> 32) as u16).collect()
}

/// The first and the last numbers of a text, half of `N` each. Zeros stand for missing ones.
pub(super) fn numbers<const N: usize>(text: &str) -> [u32; N] {
    let text = text.as_bytes();
    let mut numbers = [0; N];
    let (head, tail) = (&text[..text.len().min(PART)], &text[text.len().saturating_sub(PART)..]);
    let digits = |run: &&[u8]| run[0].is_ascii_digit();
    let same = |one: &u8, other: &u8| one.is_ascii_digit() == other.is_ascii_digit();
    for (number, run) in numbers[..N / 2].iter_mut().zip(head.chunk_by(same).filter(digits)) {
        *number = value(run);
    }
    for (number, run) in numbers[N / 2..].iter_mut().zip(tail.chunk_by(same).rev().filter(digits)) {
        *number = value(run);
    }
    numbers
}

/// A number, or of a longer one its length and its first digits, so that of two numbers the larger one is larger.
fn value(digits: &[u8]) -> u32 {
    let digits = &digits[digits.iter().take_while(|digit| **digit == b'0').count()..];
    let number = |digits: &[u8]| digits.iter().fold(0, |number: u32, digit| number * 10 + u32::from(digit - b'0'));
    if digits.len() <= 9 {
        return number(digits);
    }
    1_000_000_000 + 10_000_000 * (digits.len().min(300) as u32) + number(&digits[..7])
}

/// A line that is being read.
struct Line {
    digest: Digest,
    /// Whether something was added.
    begun: bool,
    /// Letters and digits that were read.
    read: usize,
}

impl Line {
    fn new() -> Self {
        Self { digest: Digest::new(23), begun: false, read: 0 }
    }

    /// Takes a word. `digits`: it contains some.
    fn word(&mut self, word: &[u8], digits: bool) {
        self.read += word.len();
        // A number at the beginning is that of the line in a listing.
        if self.begun || !digits || word.iter().any(|byte| !byte.is_ascii_digit()) {
            if digits {
                add_numbered(&mut self.digest, word)
            } else {
                self.digest.bytes(word)
            }
            self.begun = true;
        }
    }

    fn mark(&mut self, mark: u8) {
        if !mark.is_ascii_whitespace() && !matches!(mark, b'"' | b'\'' | b'`' | b'\\' | b'|' | b':') {
            self.digest.word(u64::from(mark));
            self.begun = true;
        }
    }

    /// Ends the line.
    fn end(&mut self, lines: &mut Vec<u64>) {
        let line = std::mem::replace(self, Self::new());
        if line.read >= LINE {
            lines.push(line.digest.finish());
        }
    }
}

fn add(text: &[u8], lines: &mut Vec<u64>) {
    let (mut line, mut at) = (Line::new(), 0);
    while at < text.len() {
        let escaped = text[at] == b'\\' && text.get(at + 1) == Some(&b'n');
        if text[at] == b'\n' || escaped {
            line.end(lines);
            at += 1 + usize::from(escaped);
        } else if shapes::in_word(text[at]) {
            let (end, digits) = shapes::word(text, at);
            line.word(&text[at..end], digits);
            at = end;
        } else {
            line.mark(text[at]);
            at += 1;
        }
    }
    line.end(lines);
}

/// Adds a word with digits.
fn add_numbered(line: &mut Digest, word: &[u8]) {
    let hex = |digits: &[u8], least| digits.len() >= least && digits.iter().all(u8::is_ascii_hexdigit);
    if hex(word, HEX) || word.strip_prefix(b"0x").is_some_and(|digits| hex(digits, 1)) {
        return line.word(NUMBER);
    }
    for piece in word.chunk_by(|one, other| one.is_ascii_digit() == other.is_ascii_digit()) {
        if piece[0].is_ascii_digit() { line.word(NUMBER) } else { line.bytes(piece) }
    }
}

/// The shortest word of hexadecimal digits that is a number.
const HEX: usize = 6;

/// Every number.
const NUMBER: u64 = 0;

/// The digest of all lines of a text, without regard to their order and number.
pub(super) fn together(lines: &[u16]) -> u32 {
    let mut sorted = lines.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut digest = Digest::new(29);
    sorted.iter().for_each(|line| digest.word(u64::from(*line)));
    digest::short(digest.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_order_however_long_they_are() {
        let values: Vec<u32> =
            ["0", "007", "8", "999999999", "1000000000", "4000000000", "10000000000", &"9".repeat(400)]
                .iter()
                .map(|digits| value(digits.as_bytes()))
                .collect();
        assert!(values.is_sorted_by(|one, other| one < other), "{values:?}");
    }
}
