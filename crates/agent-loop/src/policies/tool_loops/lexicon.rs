//! Tables of words, built once.

use std::collections::HashMap;

/// Builds a map from each word to its meaning. A row holds a meaning and the words with it, separated by white space.
pub(super) fn lexicon<T: Copy>(rows: &[(T, &'static str)]) -> HashMap<&'static str, T> {
    rows.iter().flat_map(|(says, words)| words.split_ascii_whitespace().map(|word| (word, *says))).collect()
}
