//! Words by what they say: tables that are read once.

use std::collections::HashMap;

/// The words of a table, each row of which is what its words say and the words, apart by blanks.
pub(super) fn lexicon<T: Copy>(rows: &[(T, &'static str)]) -> HashMap<&'static str, T> {
    rows.iter().flat_map(|(says, words)| words.split_ascii_whitespace().map(|word| (word, *says))).collect()
}
