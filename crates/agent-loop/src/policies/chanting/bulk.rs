//! Detects code, tables, quotes and headings that go on with the same lines, far beyond what anybody writes.
//!
//! Such lines legitimately repeat, so only [`ENDLESS`] of them in a row are a finding. A line is known by its length
//! and its first bytes. Only after half of the lines are all bytes compared, by a hash, so that code costs almost nothing.

use super::cycles::Cycles;
use super::head::Kind;
use super::{Chant, Patience};

/// Lines in a row that repeat one cycle of at most four lines. 1024: a screen has about 50 lines, and a data file that
/// a person wants to read has seldom as many equal ones.
const ENDLESS: u32 = 1024;

/// Bytes by which a line is known at first.
const FIRST: u32 = 8;

/// Characters of a line that are stored for the quote.
const QUOTED: usize = 32;

/// An odd number without a pattern: the fractional bits of the square root of 5.
const SPREAD: u64 = 0x3C6E_F372_FE94_F82B;

/// The recent lines of code, tables, quotes and headings.
#[derive(Clone, Debug, PartialEq, Default)]
pub(super) struct Bulk {
    /// Whether the line is one of these.
    counts: bool,
    line: Print,
    lines: Cycles<Print>,
    /// All bytes are compared.
    closely: bool,
    quote: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Default)]
struct Print {
    bytes: u32,
    hash: u64,
}

impl Bulk {
    /// Begins a line. Prose, an entry of a list or a fence ends the block.
    pub(super) fn begin(&mut self, kind: Kind) {
        self.counts = matches!(kind, Kind::Code | Kind::Table | Kind::Quote | Kind::Heading);
        self.line = Print::default();
        self.quote.clear();
        if !self.counts && kind != Kind::Blank && (self.closely || self.lines.last()[0] != Print::default()) {
            *self = Self::default();
        }
    }

    /// Reads a piece of the line.
    pub(super) fn take(&mut self, text: &str) {
        if !self.counts {
            return;
        }
        let free = FIRST.saturating_sub(self.line.bytes) as usize;
        let read = if self.closely { text.len() } else { free.min(text.len()) };
        self.line.hash = text.as_bytes()[..read].iter().fold(self.line.hash, |hash, byte| {
            (hash.rotate_left(8) ^ u64::from(*byte)).wrapping_mul(if self.closely { SPREAD } else { 1 })
        });
        self.line.bytes = self.line.bytes.saturating_add(text.len() as u32);
        if self.closely {
            self.quote.extend(text.chars().take(QUOTED - self.quote.chars().count()));
        }
    }

    /// Ends the line. Returns a verdict if it completes an endless block that was not asked for.
    pub(super) fn end(&mut self, patience: &mut Patience) -> Option<Chant> {
        if !std::mem::take(&mut self.counts) || self.line.bytes == 0 {
            return None;
        }
        self.lines.push(self.line);
        let period = self.lines.period(|_| ENDLESS / 2)?;
        self.lines.count_anew();
        if !self.closely {
            (self.closely, self.lines) = (true, Cycles::default());
            return None;
        }
        let spacing: u64 = self.lines.last()[..period].iter().map(|line| u64::from(line.bytes) + 1).sum();
        let count = u64::from(ENDLESS) / period as u64;
        let quote = self.quote.clone();
        let chant = Chant {
            count,
            spacing,
            periods: 1,
            lines: Some(period as u64),
            unit: quote.clone(),
            size: spacing,
            quote,
            fresh: spacing * count / 2,
        };
        (!patience.grants(&chant)).then_some(chant)
    }
}
