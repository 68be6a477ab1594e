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
use super::plain::BLANK;

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

/// Characters that are kept: the last window, everything within its reach, and those of one call that come after it.
const KEPT: usize = (REACH + WINDOW) as usize + HASHED;

/// Characters of a gram. 16: a character moves through the 64 bits of the hash in steps of 4, and is out after 16.
const GRAM: u32 = 16;

/// Grams in a window.
const GRAMS: u32 = WINDOW - GRAM + 1;

/// Hashes of grams that are kept: those of one window and many more, so that they are seldom moved.
const HASHED: usize = 256;

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
    /// Characters of this run.
    len: u32,
    /// The characters; the one that was taken as the n-th stands at `(n - 1) % KEPT`.
    kept: [u32; KEPT],
    /// Of the last 16 characters.
    hash: u64,
    /// Hashes of the grams that end at the last `hashed` characters; [`NO_GRAM`] where fewer than 16 were there.
    grams: [i32; HASHED],
    hashed: usize,
    /// The least hash of the window's grams, and where that gram ends.
    min: i32,
    min_end: u32,
    /// There are enough records of the window's gram for a verdict.
    hot: bool,
    /// A ring: `records` of them from `oldest` on.
    ring: [Record; RECORDS],
    oldest: usize,
    records: usize,
    /// How many records there are with tags of that place.
    places: [u16; PLACES],
}

/// Greater than every hash, which has 30 bits: signed, since that is what processors compare many of at once.
const NO_GRAM: i32 = i32::MAX;

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
        }
    }
}

impl Window {
    /// Begins a new run: what was taken so far repeats nothing that comes.
    pub(super) fn restart(&mut self) {
        (self.len, self.hash, self.hashed) = (0, 0, 0);
        (self.min, self.min_end, self.hot) = (NO_GRAM, 0, false);
        (self.oldest, self.records) = (0, 0);
        self.places.fill(0);
    }

    /// Takes prose and stops at the first character with which it chants: which of them it is, and what was seen.
    pub(super) fn take(&mut self, chars: &[u32]) -> Option<(usize, Chant)> {
        let mut taken = 0;
        while taken < chars.len() {
            self.make_room();
            let now = &chars[taken..chars.len().min(taken + HASHED - self.hashed)];
            self.keep(now);
            self.hash(now);
            let first = self.len;
            self.len += now.len() as u32;
            self.hashed += now.len();
            if let Some((end, chant)) = self.slide(first) {
                return Some((taken + (end - first) as usize - 1, chant));
            }
            taken += now.len();
        }
        None
    }

    /// Takes a blank, where there is something that it divides: a line has ended.
    pub(super) fn blank(&mut self) -> Option<Chant> {
        let last = self.len.checked_sub(1).map(|at| self.kept[at as usize % KEPT]);
        if last.is_none_or(|last| last == BLANK) {
            return None;
        }
        self.take(&[BLANK]).map(|(_, chant)| chant)
    }

    /// Moves the hashes of the last window to the front, when there is no room for more.
    fn make_room(&mut self) {
        if self.hashed < HASHED {
            return;
        }
        if self.len >= u32::MAX - HASHED as u32 {
            return self.restart(); // positions are 32 bits; after 4 thousand million characters the run begins anew
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

    /// Hashes the grams that end at these characters, which come next.
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

    /// Slides the window over the characters after the `first` ones, from one gram that stands for it to the next.
    fn slide(&mut self, first: u32) -> Option<(u32, Chant)> {
        let mut end = first;
        loop {
            let stays = self.len.min(self.min_end + GRAMS - 1);
            let less = self.find_less(end, stays);
            let same = less.map_or(stays, |at| at - 1);
            if self.hot {
                for end in end + 1..=same {
                    if let Some(chant) = self.judge(end) {
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
                && let Some(chant) = self.judge(end)
            {
                return Some((end, chant));
            }
        }
    }

    /// Where the hash of the gram that ends at this character is kept.
    fn place_of(&self, end: u32) -> usize {
        self.hashed - 1 - (self.len - end) as usize
    }

    /// The first gram that ends after `from`, up to `to`, and has a lesser hash than the one that stands for the window.
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

    /// Finds the gram that stands for the window that ends here, the first of equals.
    fn find_least(&mut self, end: u32) {
        let last = self.place_of(end);
        let grams = &self.grams[last + 1 - GRAMS as usize..=last];
        let least = grams.iter().fold(NO_GRAM, |least, gram| least.min(*gram));
        let at = grams.iter().position(|gram| *gram == least).unwrap_or_default();
        (self.min, self.min_end) = (least, end + 1 - GRAMS + at as u32);
    }

    /// Remembers the gram that stands for the window by now.
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

    /// The rule itself, asked of the window that ends here. Every occurrence within reach has its record.
    #[cold]
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

fn place(tag: u16) -> usize {
    usize::from(tag) % PLACES
}
