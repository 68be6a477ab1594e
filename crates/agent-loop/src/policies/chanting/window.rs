//! Detects prose that repeats itself: compares the last characters with earlier ones, exactly and at low cost.
//!
//! [`super`] defines the rule: search backwards for the last [`WINDOW`] characters. Applying the rule after each
//! character would cost thousands of comparisons. So it is applied only where it can hold:
//!
//! - One *gram* of [`GRAM`] characters represents each window: the gram with the smallest hash, the first of equal
//!   ones. The choice depends only on the window, so equal windows have equal grams at equal positions. (These are the
//!   minimizers of document fingerprinting: Schleimer, Wilkerson, Aiken, "Winnowing", 2003.)
//! - Only the grams that represent a window are stored, about one for 18 characters: [`Record`].
//! - Ten counted windows need ten records of one gram within reach. The number of records of each gram is counted, and
//!   as long as there are fewer, nothing is compared.
//!
//! Hashes only select what is compared. A verdict always follows from equal characters; a collision costs only time.

use super::plain::BLANK;
use super::{Chant, Patience};

/// Characters of a window. Source: the chanting rule of Gemini CLI.
pub(super) const WINDOW: u32 = 50;

/// Occurrences that are chanting. Source: the chanting rule of Gemini CLI.
pub(super) const OCCURRENCES: usize = 10;

/// Longest average spacing of the counted occurrences, in characters. Source: the newer, measured form of that rule.
const MAX_SPACING: u32 = 250;

/// Most different texts between neighbouring occurrences. With more of them, the text is a list whose entries begin
/// alike. Source: the newer, measured form of that rule.
const MAX_PERIODS: usize = 5;

/// Most characters from the first of the counted occurrences to the last.
const REACH: u32 = MAX_SPACING * (OCCURRENCES as u32 - 1);

/// Characters that are kept: the last window, everything within its reach, and the characters that one call may add.
const KEPT: usize = (REACH + WINDOW) as usize + HASHED;

/// Characters of a gram. 16: each step shifts the 64 bits of the hash by 4, so a character no longer affects it after
/// 16.
const GRAM: u32 = 16;

/// Grams in a window.
const GRAMS: u32 = WINDOW - GRAM + 1;

/// Hashes of grams that are kept: those of one window and many more, so that they are moved only rarely.
const HASHED: usize = 256;

/// Records that are kept. Prose has about 128 within reach, and text with small periods has one for 35 characters. With
/// more records than this, the oldest are dropped early. Then a repetition with the longest spacing is detected late or
/// not at all.
const RECORDS: usize = 384;

/// Characters after which a finding that was held back is considered again.
const HELD_BACK: u32 = 1024;

/// Slots of the table that counts records by their tag.
const PLACES: usize = 512;

/// An odd number without a pattern: the golden ratio in 64 bits.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The last characters of a run of prose, and the positions of equal grams in them.
#[derive(Clone, PartialEq)]
pub(super) struct Window {
    /// Characters of this run.
    len: u32,
    /// The characters. The n-th one is at `(n - 1) % KEPT`.
    kept: [u32; KEPT],
    /// Hash of the last 16 characters.
    hash: u64,
    /// Hashes of the grams that end at the last `hashed` characters; [`NO_GRAM`] if fewer than 16 characters had been
    /// read.
    grams: [i32; HASHED],
    hashed: usize,
    /// The smallest hash of the window's grams, and the end of that gram.
    min: i32,
    min_end: u32,
    /// There are enough records of the window's gram for a verdict.
    hot: bool,
    /// A ring buffer: it holds `records` records, and `oldest` is the index of the first.
    ring: [Record; RECORDS],
    oldest: usize,
    records: usize,
    /// The number of records for each slot of their tags.
    places: [u16; PLACES],
    /// The position at which the last finding was held back; 0: none was.
    held_back: u32,
}

/// Greater than every hash. Hashes have 30 bits and are signed, because processors compare many signed numbers at once.
const NO_GRAM: i32 = i32::MAX;

/// A gram that represented a window, and the last end of the equal grams that followed within the length of a window.
/// Text with a short period repeats its gram in every period and needs only one record for all of them.
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
        f.debug_struct("Window").field("len", &self.len).field("records", &self.records).finish_non_exhaustive()
    }
}

impl Default for Window {
    fn default() -> Self {
        Self {
            len: 0,
            kept: [0; KEPT],
            hash: 0,
            grams: [NO_GRAM; HASHED],
            hashed: 0,
            min: NO_GRAM,
            min_end: 0,
            hot: false,
            ring: [Record::default(); RECORDS],
            oldest: 0,
            records: 0,
            places: [0; PLACES],
            held_back: 0,
        }
    }
}

impl Window {
    /// Begins a new run, which is not compared with the text before it.
    pub(super) fn restart(&mut self) {
        (self.len, self.hash, self.hashed) = (0, 0, 0);
        (self.min, self.min_end, self.hot) = (NO_GRAM, 0, false);
        (self.oldest, self.records, self.held_back) = (0, 0, 0);
        self.places.fill(0);
    }

    /// Reads prose and stops at the first character with which it chants and was not asked to. Returns the index of
    /// that character, and the verdict.
    pub(super) fn take(&mut self, chars: &[u32], patience: &mut Patience) -> Option<(usize, Chant)> {
        let mut taken = 0;
        while taken < chars.len() {
            self.make_room();
            let now = &chars[taken..chars.len().min(taken + HASHED - self.hashed)];
            self.keep(now);
            self.hash(now);
            let first = self.len;
            self.len += now.len() as u32;
            self.hashed += now.len();
            if let Some((end, chant)) = self.slide(first, patience) {
                return Some((taken + (end - first) as usize - 1, chant));
            }
            taken += now.len();
        }
        None
    }

    /// Adds a blank at the end of a line, unless there is no character before it or the last one is a blank already.
    pub(super) fn blank(&mut self, patience: &mut Patience) -> Option<Chant> {
        let last = self.len.checked_sub(1).map(|at| self.kept[at as usize % KEPT]);
        if last.is_none_or(|last| last == BLANK) {
            return None;
        }
        self.take(&[BLANK], patience).map(|(_, chant)| chant)
    }

    /// Moves the hashes of the last window to the front if the buffer is full.
    fn make_room(&mut self) {
        if self.hashed < HASHED {
            return;
        }
        if self.len >= u32::MAX - HASHED as u32 {
            return self.restart(); // positions have 32 bits; the run restarts after 4 billion characters
        }
        let last = GRAMS as usize - 1;
        self.grams.copy_within(HASHED - last.., 0);
        self.hashed = last;
    }

    fn keep(&mut self, chars: &[u32]) {
        let slot = self.len as usize % KEPT;
        let (here, wrapped) = chars.split_at(chars.len().min(KEPT - slot));
        self.kept[slot..slot + here.len()].copy_from_slice(here);
        self.kept[..wrapped.len()].copy_from_slice(wrapped);
    }

    /// Hashes the grams that end at these characters.
    fn hash(&mut self, chars: &[u32]) {
        let mut hash = self.hash;
        let grams = &mut self.grams[self.hashed..];
        for (gram, c) in grams.iter_mut().zip(chars) {
            hash = (hash << 4).wrapping_add(u64::from(*c).wrapping_mul(SPREAD));
            *gram = (hash.wrapping_mul(SPREAD) >> 34) as i32;
        }
        self.hash = hash;
        let short = (GRAM - 1).saturating_sub(self.len) as usize;
        grams[..short.min(chars.len())].fill(NO_GRAM);
    }

    /// Moves the window over the characters after `first`, from one representing gram to the next.
    fn slide(&mut self, first: u32, patience: &mut Patience) -> Option<(u32, Chant)> {
        let mut end = first;
        loop {
            let stays = self.len.min(self.min_end + GRAMS - 1);
            let less = self.find_less(end, stays);
            let same = less.map_or(stays, |at| at - 1);
            if self.hot {
                for end in end + 1..=same {
                    if let Some(chant) = self.finding(end, patience) {
                        return Some((end, chant));
                    }
                }
            }
            end = match less {
                Some(at) => at,
                None if same == self.len => return None,
                None => same + 1,
            };
            match less {
                Some(at) => (self.min, self.min_end) = (self.grams[self.place_of(at)], at),
                None => self.find_least(end),
            }
            self.record();
            if self.hot
                && let Some(chant) = self.finding(end, patience)
            {
                return Some((end, chant));
            }
        }
    }

    /// The index of the hash of the gram that ends at this character.
    fn place_of(&self, end: u32) -> usize {
        self.hashed - 1 - (self.len - end) as usize
    }

    /// The end of the first gram after `from`, up to `to`, that has a smaller hash than the representing gram.
    fn find_less(&self, from: u32, to: u32) -> Option<u32> {
        if from >= to {
            return None;
        }
        let (start, min) = (self.place_of(from + 1), self.min);
        let grams = &self.grams[start..=self.place_of(to)];
        let mut at = 0;
        for some in grams.chunks(8) {
            if some.iter().fold(false, |any, gram| any | (*gram < min)) {
                at += some.iter().position(|gram| *gram < min)?;
                return Some(from + 1 + at as u32);
            }
            at += some.len();
        }
        None
    }

    /// Finds the gram that represents the window that ends here: the smallest hash, the first of equal ones.
    fn find_least(&mut self, end: u32) {
        let last = self.place_of(end);
        let grams = &self.grams[last + 1 - GRAMS as usize..=last];
        let least = grams.iter().fold(NO_GRAM, |least, gram| least.min(*gram));
        let at = grams.iter().position(|gram| *gram == least).unwrap_or_default();
        (self.min, self.min_end) = (least, end + 1 - GRAMS + at as u32);
    }

    /// Stores a record of the gram that represents the window now.
    fn record(&mut self) {
        let (tag, end) = (self.min as u16, self.min_end);
        let newest = (self.oldest + self.records + RECORDS - 1) % RECORDS;
        let last = &mut self.ring[newest];
        if self.records > 0 && last.tag == tag && end - last.end < GRAMS {
            last.more = (end - last.end) as u8;
        } else {
            while self.records == RECORDS || (self.records > 0 && self.ring[self.oldest].last_end() + REACH < end) {
                self.places[place(self.ring[self.oldest].tag)] -= 1;
                self.oldest = (self.oldest + 1) % RECORDS;
                self.records -= 1;
            }
            self.ring[(self.oldest + self.records) % RECORDS] = Record { end, tag, more: 0 };
            self.records += 1;
            self.places[place(tag)] += 1;
        }
        self.hot = usize::from(self.places[place(tag)]) >= OCCURRENCES;
    }

    /// Judges the window that ends here. A finding that was asked for is held back for some time.
    #[cold]
    fn finding(&mut self, end: u32, patience: &mut Patience) -> Option<Chant> {
        if self.held_back > 0 && end < self.held_back.saturating_add(HELD_BACK) {
            return None;
        }
        let chant = self.judge(end)?;
        if patience.grants(&chant) {
            self.held_back = end;
            return None;
        }
        Some(chant)
    }

    /// Applies the rule to the window that ends here. Every occurrence within reach has a record.
    fn judge(&self, end: u32) -> Option<Chant> {
        let (tag, lag) = (self.min as u16, end - self.min_end);
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
                let size = self.unit(end, ends[0] - ends[1]);
                return self.periods(&ends).map(|periods| Chant {
                    count: OCCURRENCES as u64,
                    spacing: u64::from(end - ends[OCCURRENCES - 1]) / (OCCURRENCES as u64 - 1),
                    periods: periods as u64,
                    lines: None,
                    quote: self.text(end - WINDOW, end),
                    unit: self.text(end - size, end),
                    size: size.into(),
                    fresh: self.fresh(end, ends[OCCURRENCES - 1]),
                });
            }
        }
        None
    }

    /// The distance to the nearest occurrence before, which may overlap: the length of the unit that is repeated.
    fn unit(&self, end: u32, distance: u32) -> u32 {
        (1..distance).find(|length| self.equal(end, end - length, WINDOW)).unwrap_or(distance)
    }

    /// Characters of a repetition that began with this occurrence, less those that were seen when it was held back.
    fn fresh(&self, end: u32, first: u32) -> u64 {
        let begin =
            if self.held_back > 0 && end - self.held_back <= 2 * HELD_BACK { self.held_back } else { first - WINDOW };
        u64::from(end - begin)
    }

    /// The number of different texts between neighbouring ends; `None`: too many. The ends are in descending order.
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

    /// Whether the `length` characters that end at these two positions are equal.
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

fn place(tag: u16) -> usize {
    usize::from(tag) % PLACES
}
