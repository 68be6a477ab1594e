//! Detects whole lines that are repeated, one by one or in a cycle of a few: bullets, numbered entries, steps.
//!
//! A line is its text without the bullet or the number before it, with collapsed blanks. A line of fewer than
//! [`TRIVIAL`] characters is not compared alone. It belongs to the next longer line. So a label that is repeated with a
//! different value each time is no repetition.
//!
//! Lines are compared by a hash of 64 bits. A false verdict needs a collision: a line that differs from the line it is
//! compared with and has the same hash, among fifteen lines that truly repeat.

use super::cycles::{CYCLE, Cycles};
use super::head::Kind;
use super::plain::BLANK;
use super::{Chant, Patience};

/// Shorter lines are no evidence. 12 characters: longer than "- Yes, done." without its bullet, and than the closing
/// braces of code.
const TRIVIAL: u32 = 12;

/// Repetitions of a cycle that are chanting. 16: more than the similar entries that a person writes by hand.
const REPEATS: u32 = 16;

/// Characters of a line that are stored for the quote.
const QUOTED: usize = 32;

/// An odd number without a pattern: the fractional bits of the square root of 3.
const SPREAD: u64 = 0xBB67_AE85_84CA_A73B;

/// Its powers from the eighth down to the first. Eight characters are hashed at once.
const POWERS: [u64; 8] = {
    let mut powers = [SPREAD; 8];
    let mut at = 7;
    while at > 0 {
        at -= 1;
        powers[at] = powers[at + 1].wrapping_mul(SPREAD);
    }
    powers
};

/// The recent lines of a text, for the comparison.
#[derive(Clone, Debug, PartialEq, Default)]
pub(super) struct Lines {
    line: Line,
    /// Hash of the short lines since the last longer one.
    before: u64,
    /// The hashes of the longer lines.
    cycles: Cycles<u64>,
    /// Their lengths, in characters, newest first.
    lengths: [u32; CYCLE],
}

/// The line that is being read.
#[derive(Clone, Debug, PartialEq, Default)]
struct Line {
    /// Whether the line is compared.
    counts: bool,
    hash: u64,
    chars: u32,
    /// Whether a blank came last. It is hashed when another character follows.
    blank: bool,
    quote: [u32; QUOTED],
}

impl Lines {
    /// Begins a line.
    pub(super) fn begin(&mut self, kind: Kind) {
        // Code, tables, headings and quotes legitimately repeat their lines.
        let counts = matches!(kind, Kind::Item | Kind::Prose);
        self.line = Line { counts, ..Line::default() };
    }

    /// Reads a piece of the line.
    pub(super) fn take(&mut self, chars: &[u32]) {
        let Some((last, most)) = chars.split_last().filter(|_| self.line.counts) else { return };
        if std::mem::take(&mut self.line.blank) {
            self.line.add(&[BLANK]);
        }
        self.line.blank = *last == BLANK;
        self.line.add(if self.line.blank { most } else { chars });
    }

    /// Ends the line. Returns a verdict if the line completes a chant that was not asked for.
    pub(super) fn end(&mut self, patience: &mut Patience) -> Option<Chant> {
        let line = &self.line;
        if !line.counts || line.chars == 0 {
            return None;
        }
        if line.chars < TRIVIAL {
            self.before = (self.before ^ line.hash).wrapping_mul(SPREAD).rotate_left(29);
            return None;
        }
        let whole = (line.hash ^ self.before ^ u64::from(line.chars)).max(1);
        self.before = 0;
        self.cycles.push(whole);
        self.lengths.rotate_right(1);
        self.lengths[0] = line.chars;
        let chant = self.judge()?;
        if patience.grants(&chant) {
            self.cycles.count_anew();
            return None;
        }
        Some(chant)
    }

    fn judge(&self) -> Option<Chant> {
        let period = self.cycles.period(|period| (REPEATS - 1) * period as u32)?;
        let spacing = self.lengths[..period].iter().map(|chars| u64::from(*chars)).sum();
        let chars = self.line.quote.iter().take(self.line.chars as usize);
        let quote: String = chars.filter_map(|c| char::from_u32(*c)).collect();
        Some(Chant {
            count: u64::from(REPEATS),
            spacing,
            periods: 1,
            lines: Some(period as u64),
            unit: quote.clone(),
            size: spacing,
            quote,
            fresh: spacing * u64::from(REPEATS),
        })
    }
}

impl Line {
    /// Adds characters to the hash. The hash is a polynomial over them, so the number of characters added at once does
    /// not matter.
    fn add(&mut self, chars: &[u32]) {
        if let Some(free) = self.quote.get_mut(self.chars as usize..) {
            free.iter_mut().zip(chars).for_each(|(free, c)| *free = *c);
        }
        self.chars = self.chars.saturating_add(chars.len() as u32);
        let mut eights = chars.chunks_exact(8);
        for eight in eights.by_ref() {
            let sum = eight
                .iter()
                .zip(POWERS)
                .fold(0_u64, |sum, (c, power)| sum.wrapping_add(power.wrapping_mul((*c).into())));
            self.hash = self.hash.wrapping_mul(POWERS[0]).wrapping_add(sum);
        }
        for c in eights.remainder() {
            self.hash = self.hash.wrapping_add(u64::from(*c)).wrapping_mul(SPREAD);
        }
    }
}
