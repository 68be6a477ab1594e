//! Prose that repeats itself: windows over the last characters, counted exactly and found cheaply.
//!
//! The rule is that of [`super`]: the last [`WINDOW`] characters, looked for backwards. Asking it after each character
//! would cost thousands of comparisons, so it is asked only where it can hold:
//!
//! - Of every window one *gram* of [`GRAM`] characters stands for it: the one with the least hash, the first of equals.
//!   Which one that is depends on nothing but the window, so equal windows have equal grams at equal places. (These are
//!   the minimizers of document fingerprinting: Schleimer, Wilkerson, Aiken, "Winnowing", 2003.)
//! - Only the grams that stand for a window are remembered, about one for 18 characters: [`Record`].
//! - Ten counted windows need ten records of one gram within reach. How many there are is counted beside them, and as
//!   long as there are fewer, nothing is compared at all.
//!
//! Hashes only choose what is compared: a verdict follows from equal characters, and a collision costs some time.

use super::Chant;

/// Characters of a window. Source: the chanting rule of Gemini CLI.
pub(super) const WINDOW: u32 = 50;

/// Occurrences that are chanting. Source: the same.
pub(super) const OCCURRENCES: usize = 10;

/// Longest average spacing of the counted occurrences, in characters. Source: the same, in its newer, measured form.
const MAX_SPACING: u32 = 250;

/// Most different texts between neighbouring occurrences; with more, it is a list whose entries begin alike. Source: the
/// same.
const MAX_PERIODS: usize = 5;

/// How far the first of the counted occurrences lies behind the last at most.
const REACH: u32 = MAX_SPACING * (OCCURRENCES as u32 - 1);

/// Characters that are kept: the last window, and everything within its reach.
const KEPT: usize = (REACH + WINDOW) as usize;

/// Characters of a gram. 16: a character moves through the 64 bits of the hash in steps of 4, and is out after 16.
const GRAM: u32 = 16;

/// Grams in a window.
const GRAMS: u32 = WINDOW - GRAM + 1;

/// Records that are kept. Prose has about 128 within reach; with more than this, the oldest are forgotten early, and a
/// repetition with the longest spacing is seen late or not at all. Text of small periods has one for 35 characters.
const RECORDS: usize = 384;

/// Places of the table that counts records by their tag.
const PLACES: usize = 512;

/// Odd and without pattern: the golden ratio in 64 bits.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The last characters of a run of prose, and where in them the same grams were seen.
#[derive(Clone, PartialEq)]
pub(super) struct Window {
    roll: Roll,
    /// The characters; the one that was taken as the n-th stands at `(n - 1) % KEPT`.
    kept: [u32; KEPT],
    /// Hashes of the grams that end at the last characters, by the end's low bits; 64 are more than a window has.
    grams: [u32; 64],
    /// A ring: `records` of them from `oldest` on.
    ring: [Record; RECORDS],
    oldest: usize,
    records: usize,
    /// How many records there are with tags of that place.
    places: [u16; PLACES],
}

/// What changes with each character. Small, so that the loop keeps it in registers.
#[derive(Clone, Copy, PartialEq, Default)]
struct Roll {
    /// Characters of this run.
    len: u32,
    /// Where the next one is kept.
    slot: usize,
    /// Of the last 16 characters.
    hash: u64,
    /// The least hash of the window's grams, and where that gram ends.
    min: u32,
    min_end: u32,
    /// The last one was no blank, so that a blank is taken.
    after_word: bool,
    /// There are enough records of the window's gram for a verdict.
    hot: bool,
}

/// A gram that stood for a window, and the ends of those that followed within a window's length and are the same: text
/// with a short period repeats its gram with every period, and needs one record for all of them.
#[derive(Clone, Copy, PartialEq, Default)]
struct Record {
    end: u32,
    tag: u16,
    more: u8,
}

impl Record {
    fn last_end(self) -> u32 {
        self.end + u32::from(self.more)
    }
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Window").field("len", &self.roll.len).field("records", &self.records).finish_non_exhaustive()
    }
}

impl Default for Window {
    fn default() -> Self {
        Self {
            roll: Roll::default(),
            kept: [0; KEPT],
            grams: [0; 64],
            ring: [Record::default(); RECORDS],
            oldest: 0,
            records: 0,
            places: [0; PLACES],
        }
    }
}

impl Window {
    /// Begins a new run: what was taken so far repeats nothing that comes.
    pub(super) fn restart(&mut self) {
        self.roll = Roll::default();
        (self.oldest, self.records) = (0, 0);
        self.places.fill(0);
    }

    /// Takes prose and stops at the first character with which it chants: what was seen, and where that character ends
    /// in `text`, in bytes.
    pub(super) fn take(&mut self, text: &str) -> Option<(usize, Chant)> {
        let mut roll = self.roll;
        for (at, read) in text.char_indices() {
            let c = if read.is_whitespace() { ' ' } else { read };
            if c == ' ' && !roll.after_word {
                continue;
            }
            roll.after_word = c != ' ';
            if roll.push(u32::from(c), &mut self.kept, &mut self.grams) {
                self.record(&mut roll);
            }
            if roll.hot
                && let Some(chant) = self.judge(&roll)
            {
                return Some((at + read.len_utf8(), chant));
            }
        }
        self.roll = roll;
        None
    }

    /// Takes a blank: a line has ended.
    pub(super) fn blank(&mut self) -> Option<Chant> {
        self.take(" ").map(|(_, chant)| chant)
    }

    /// Remembers the gram that stands for the window by now.
    fn record(&mut self, roll: &mut Roll) {
        if roll.len >= u32::MAX - GRAMS {
            self.restart(); // positions are 32 bits; after 4 thousand million characters the run begins anew
            *roll = Roll::default();
            return;
        }
        let (tag, end) = (roll.min as u16, roll.min_end);
        let newest = (self.oldest + self.records).checked_sub(1).map(|at| at % RECORDS);
        match newest.map(|at| &mut self.ring[at]) {
            Some(last) if self.records > 0 && last.tag == tag && end - last.end < GRAMS => {
                last.more = (end - last.end) as u8;
            }
            _ => {
                while self.records == RECORDS || (self.records > 0 && self.ring[self.oldest].last_end() + REACH < end) {
                    self.places[place(self.ring[self.oldest].tag)] -= 1;
                    self.oldest = (self.oldest + 1) % RECORDS;
                    self.records -= 1;
                }
                self.ring[(self.oldest + self.records) % RECORDS] = Record { end, tag, more: 0 };
                self.records += 1;
                self.places[place(tag)] += 1;
            }
        }
        roll.hot = usize::from(self.places[place(tag)]) >= OCCURRENCES;
    }

    /// The rule itself, asked of the window that ends here. Every occurrence within reach has its record.
    #[cold]
    fn judge(&self, roll: &Roll) -> Option<Chant> {
        let (end, tag) = (roll.len, roll.min as u16);
        let lag = end - roll.min_end;
        let mut ends = [end; OCCURRENCES];
        let mut counted = 1;
        for back in 1..=self.records {
            let record = self.ring[(self.oldest + self.records - back) % RECORDS];
            if record.tag != tag {
                continue;
            }
            for gram in (record.end..=record.last_end()).rev() {
                let at = gram + lag;
                if at + WINDOW > ends[counted - 1] {
                    continue;
                }
                if at < WINDOW || end - at > REACH {
                    return None;
                }
                if self.equal(at, end, WINDOW) {
                    ends[counted] = at;
                    counted += 1;
                    break;
                }
            }
            if counted == OCCURRENCES {
                return self.periods(&ends).map(|periods| Chant {
                    count: OCCURRENCES as u64,
                    spacing: u64::from(end - ends[OCCURRENCES - 1]) / (OCCURRENCES as u64 - 1),
                    periods: periods as u64,
                    lines: None,
                    quote: self.text(end - WINDOW, end),
                });
            }
        }
        None
    }

    /// How many different texts lie between neighbouring ends; `None`: too many. The ends descend.
    fn periods(&self, ends: &[u32; OCCURRENCES]) -> Option<usize> {
        let mut different = [(0, 0); MAX_PERIODS];
        let mut found = 0;
        for pair in ends.windows(2) {
            let (end, length) = (pair[0], pair[0] - pair[1]);
            let known = |&(other, its): &(u32, u32)| its == length && self.equal(other, end, length);
            if different[..found].iter().any(known) {
                continue;
            }
            *different.get_mut(found)? = (end, length);
            found += 1;
        }
        Some(found)
    }

    /// Whether the `length` characters that end at these two places are the same, character by character.
    fn equal(&self, one: u32, other: u32, length: u32) -> bool {
        let (mut one, mut other) = ((one - length) as usize % KEPT, (other - length) as usize % KEPT);
        let mut left = length as usize;
        while left > 0 {
            let piece = left.min(KEPT - one).min(KEPT - other);
            if self.kept[one..one + piece] != self.kept[other..other + piece] {
                return false;
            }
            (one, other) = ((one + piece) % KEPT, (other + piece) % KEPT);
            left -= piece;
        }
        true
    }

    fn text(&self, start: u32, end: u32) -> String {
        (start..end).filter_map(|at| char::from_u32(self.kept[at as usize % KEPT])).collect()
    }
}

impl Roll {
    /// Takes a character and tells whether another gram stands for the window now.
    #[inline(always)]
    fn push(&mut self, c: u32, kept: &mut [u32; KEPT], grams: &mut [u32; 64]) -> bool {
        kept[self.slot] = c;
        self.slot += 1;
        if self.slot == KEPT {
            self.slot = 0;
        }
        self.len += 1;
        self.hash = (self.hash << 4).wrapping_add(u64::from(c).wrapping_mul(SPREAD));
        let gram = (self.hash.wrapping_mul(SPREAD) >> 32) as u32;
        grams[self.len as usize % 64] = gram;
        if self.len < GRAM {
            return false;
        }
        if gram < self.min || self.len == GRAM {
            (self.min, self.min_end) = (gram, self.len);
            return true;
        }
        if self.len - self.min_end < GRAMS {
            return false;
        }
        (self.min, self.min_end) = (u32::MAX, 0);
        for end in self.len + 1 - GRAMS..=self.len {
            let gram = grams[end as usize % 64];
            if gram < self.min || self.min_end == 0 {
                (self.min, self.min_end) = (gram, end);
            }
        }
        true
    }
}

fn place(tag: u16) -> usize {
    usize::from(tag) % PLACES
}
