//! The words of the full-text index, in the form that PostgreSQL stores.
//!
//! Belay cuts and folds words itself, for texts and for searches. PostgreSQL's own parser splits addresses, versions and
//! words with hyphens in ways of its own, and folds accents only with an extension. The result is that of FTS5 with
//! `unicode61 remove_diacritics 2`, with these differences:
//!
//! - Accents are folded in all scripts; in FTS5 those of Latin letters alone, so that a search with `ωμεγα` finds more here.
//! - Marks that belong to a word (such as the vowel signs of Devanagari) do not separate words here; in FTS5 they do.
//! - Of a word, the first 255 bytes count; of a message, about the first MiB of different words; of a word's places, the first
//!   255. PostgreSQL has limits in all three (PostgreSQL, "Limitations":
//!   <https://www.postgresql.org/docs/current/textsearch-limitations.html>).
//! - Equally good results may have another order: `ts_rank` counts places, FTS5 weighs rare words.

use std::collections::BTreeMap;
use std::fmt::Write;

use unicode_normalization::UnicodeNormalization;

/// The maximum size of a word, in bytes. PostgreSQL has 2046.
const WORD_MAX: usize = 255;

/// The maximum number of places of a word. PostgreSQL has 255 too.
const PLACES_MAX: usize = 255;

/// The highest place of a word that PostgreSQL stores.
const LAST_PLACE: usize = 16_383;

/// The maximum size of the index of one message, in bytes. PostgreSQL has 1 MiB.
const SIZE_MAX: usize = 900 * 1024;

/// The words of a text, for a column of the type `tsvector`.
pub(crate) fn vector(text: &str) -> String {
    let folded = fold(text);
    let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut size = 0;
    for (place, word) in words(&folded).enumerate() {
        // A new word has its text, up to one byte of padding, and the number of its places.
        let more = if places.contains_key(word) { 2 } else { word.len() + 5 };
        if size + more > SIZE_MAX {
            continue;
        }
        let places = places.entry(word).or_default();
        if places.len() < PLACES_MAX {
            places.push((place + 1).min(LAST_PLACE));
            size += more;
        }
    }
    let mut vector = String::with_capacity(size * 2);
    for (word, places) in places {
        let places: Vec<String> = places.iter().map(usize::to_string).collect();
        let _ = write!(vector, "'{word}':{} ", places.join(",")); // a String takes every text
    }
    vector
}

/// The terms of a search that all must be found, each as the beginning of a word, for the type `tsquery`.
pub(crate) fn all_of(terms: &[String]) -> String {
    query(terms, " & ")
}

/// The terms of a search of which one is enough.
pub(crate) fn any_of(terms: &[String]) -> String {
    query(terms, " | ")
}

fn query(terms: &[String], by: &str) -> String {
    let terms = terms.iter().filter_map(|term| {
        let folded = fold(term);
        let words: Vec<String> = words(&folded).map(|word| format!("'{word}'")).collect();
        // The words of a term follow each other, and the last one may go on.
        (!words.is_empty()).then(|| format!("({}:*)", words.join(" <-> ")))
    });
    terms.collect::<Vec<_>>().join(by)
}

/// Lower case, without accents.
fn fold(text: &str) -> String {
    let is_accent = |c: &char| ('\u{300}'..='\u{36f}').contains(c);
    text.to_lowercase().nfd().filter(|c| !is_accent(c)).nfc().collect()
}

/// The words of a folded text. They consist of letters and digits, so they need no escapes.
fn words(folded: &str) -> impl Iterator<Item = &str> {
    let words = folded.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(|word| &word[..word.floor_char_boundary(WORD_MAX)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_folded_and_have_their_places() {
        for (text, expected) in [
            ("", ""),
            ("Café, CAFÉ — naïve cafe\u{301}!", "'cafe':1,2,4 'naive':3 "),
            ("it's v1.2-rc", "'2':4 'it':1 'rc':5 's':2 'v1':3 "),
            ("각 ガ Ωμέγα ёлка", "'елка':4 'ωμεγα':3 'ガ':2 '각':1 "),
            ("\0 ' \\ :", ""),
        ] {
            let mut found: Vec<String> = vector(text).split_terminator(' ').map(str::to_owned).collect();
            let mut wanted: Vec<String> = expected.split_terminator(' ').map(str::to_owned).collect();
            found.sort();
            wanted.sort();
            assert_eq!(found, wanted, "{text:?}");
        }
    }

    #[test]
    fn terms_are_the_beginnings_of_words() {
        let terms = |list: &[&str]| list.iter().map(|term| (*term).to_owned()).collect::<Vec<_>>();
        assert_eq!(all_of(&terms(&["Café", "bar"])), "('cafe':*) & ('bar':*)");
        assert_eq!(any_of(&terms(&["a-b", "!", "c"])), "('a' <-> 'b':*) | ('c':*)");
        assert_eq!(all_of(&[]), "");
    }

    #[test]
    fn a_large_text_stays_within_the_limits_of_postgresql() {
        let many: String = (0..400_000).map(|n| format!("word{n} ")).collect();
        assert!(vector(&many).len() < 2 * SIZE_MAX);
        let long = "x".repeat(5000);
        assert_eq!(vector(&long), format!("'{}':1 ", "x".repeat(WORD_MAX)));
        let often = "again ".repeat(20_000);
        assert_eq!(vector(&often).split(',').count(), PLACES_MAX);
    }
}
