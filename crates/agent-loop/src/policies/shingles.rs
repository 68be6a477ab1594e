//! Measures the similarity of two texts by their common short sequences of words.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::digest::Digest;

/// Shorter texts, in characters, are not compared by parts: one changed number would change most of their sequences.
const MIN_CHARS: usize = 40;

/// Most sequences that are stored of each text: those with the smallest digests. 96: the error of the estimate is about
/// 0.03 at a similarity of 0.9. The estimate is exact for texts of up to a hundred words.
const MAX_SHINGLES: usize = 96;

/// Words, or characters, in a sequence.
const WIDTH: usize = 3;

/// A text whose average word has more characters than this is compared by characters: its script has no spaces.
const LONG_WORD_CHARS: usize = 12;

/// The part of a text that is compared, in bytes. 8 KiB: two pages. A text that repeats an earlier one does so from its
/// beginning.
const MAX_BYTES: usize = 8 * 1024;

/// The bits of a digest that are kept: six hexadecimal digits when stored.
const MASK: u64 = 0xFF_FFFF;

/// The smallest digests of a text's sequences of three lower-cased words (or characters), in order. Empty for a short
/// text, which is similar to no other.
#[derive(Clone, Debug, PartialEq, Default)]
pub(crate) struct Shingles(Vec<u32>);

impl Shingles {
    pub(crate) fn of(text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(MAX_BYTES)];
        let words = text.split_whitespace().count();
        let chars = text.chars().filter(|c| !c.is_whitespace()).count();
        if words == 0 || chars + words - 1 < MIN_CHARS {
            return Self::default();
        }
        let parts: Vec<u64> = if chars > words * LONG_WORD_CHARS {
            let lower = text.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase);
            lower.map(u64::from).collect()
        } else {
            text.split_whitespace().map(word).collect()
        };
        let mut digests: Vec<u32> = parts.windows(WIDTH).map(sequence).collect();
        digests.sort_unstable();
        digests.dedup();
        digests.truncate(MAX_SHINGLES);
        Self(digests)
    }

    /// Whether both share at least nine tenths of their sequences. Estimates the Jaccard index by the smallest digests
    /// of both together (Broder, "On the resemblance and containment of documents", 1997).
    pub(crate) fn is_near(&self, other: &Self) -> bool {
        let (mut left, mut right) = (self.0.as_slice(), other.0.as_slice());
        let (mut all, mut shared) = (0, 0);
        while all < MAX_SHINGLES {
            match (left, right) {
                ([one, rest @ ..], [two, others @ ..]) if one == two => {
                    shared += 1;
                    (left, right) = (rest, others);
                }
                ([one, rest @ ..], [two, ..]) if one < two => left = rest,
                ([_, ..], [_, others @ ..]) => right = others,
                // One of them has ended. If it was cut off, nothing is known about its further sequences.
                ([_, rest @ ..], []) if other.0.len() < MAX_SHINGLES => left = rest,
                ([], [_, others @ ..]) if self.0.len() < MAX_SHINGLES => right = others,
                _ => break,
            }
            all += 1;
        }
        all > 0 && shared * 10 >= all * 9
    }
}

/// The digest of a word in lower case, without the punctuation around it.
fn word(word: &str) -> u64 {
    let mut digest = Digest::new();
    let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
    let bare = if bare.is_empty() { word } else { bare };
    bare.chars().flat_map(char::to_lowercase).for_each(|c| digest.word(u64::from(c)));
    digest.end()
}

fn sequence(parts: &[u64]) -> u32 {
    let mut digest = Digest::new();
    parts.iter().for_each(|part| digest.word(*part));
    (digest.end() & MASK) as u32
}

impl Serialize for Shingles {
    /// Serialises six hexadecimal digits for each digest: half the size of a list of numbers.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text: String = self.0.iter().map(|digest| format!("{digest:06x}")).collect();
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Shingles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let read = |digits: &[u8; 6]| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        let (digits, rest) = text.as_bytes().as_chunks::<6>();
        let digests: Option<Vec<u32>> = digits.iter().map(read).collect();
        digests
            .filter(|_| rest.is_empty())
            .map(Self)
            .ok_or_else(|| serde::de::Error::custom("not a list of digests of six hexadecimal digits each"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_near_when_nine_tenths_of_their_sequences_are_shared() {
        let words = |range: std::ops::Range<usize>| range.map(|n| format!("word{n} ")).collect::<String>();
        for (one, other, near, why) in [
            (words(0..50), words(0..50), true, "the same"),
            (words(0..50), words(0..50).to_uppercase(), true, "upper case"),
            (words(0..50), words(0..50).replace(' ', ", "), true, "punctuation"),
            (words(0..50), words(0..54), true, "48 of 52 sequences"),
            (words(0..50), words(0..56), false, "48 of 54"),
            (words(0..50), words(50..100), false, "nothing shared"),
            (words(0..400), words(0..410), true, "long texts are estimated"),
            (words(0..400), words(100..500), false, "long texts that share less"),
            (words(0..3), words(0..3), false, "too short"),
            (String::new(), String::new(), false, "nothing"),
        ] {
            assert_eq!(Shingles::of(&one).is_near(&Shingles::of(&other)), near, "{why}");
            assert_eq!(Shingles::of(&other).is_near(&Shingles::of(&one)), near, "{why}");
        }
    }

    #[test]
    fn what_is_stored_reads_back_and_nonsense_is_refused() {
        let shingles = Shingles::of(&"a few words that make up a text of more than forty characters ".repeat(2));
        let stored = serde_json::to_string(&shingles).expect("serialises");
        assert_eq!(serde_json::from_str::<Shingles>(&stored).expect("reads back"), shingles);
        for bad in ["\"abc\"", "\"xyzxyz\"", "7"] {
            assert!(serde_json::from_str::<Shingles>(bad).is_err(), "{bad}");
        }
    }
}
