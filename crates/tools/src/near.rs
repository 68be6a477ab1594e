//! "Did you mean": the most similar names to a name that does not exist.

/// Lowest similarity of a suggested name, from 0 to 1 (Jaro-Winkler). 0.75: accepts a slip of two letters in a word of
/// eight, and rejects unrelated words.
const MIN_SIMILARITY: f64 = 0.75;

/// Up to `most` similar names, the most similar first. Ignores case, and also compares with the last part of each name
/// (`Tokyo` of `Asia/Tokyo`).
pub(crate) fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let wanted = wanted.to_lowercase();
    let mut scored: Vec<(f64, &str)> = names
        .into_iter()
        .map(|name| (similarity(&wanted, &name.to_lowercase()), name))
        .filter(|(score, _)| *score >= MIN_SIMILARITY)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    scored.into_iter().take(most).map(|(_, name)| name).collect()
}

fn similarity(wanted: &str, name: &str) -> f64 {
    let last = name.rsplit('/').next().unwrap_or(name);
    strsim::jaro_winkler(wanted, name).max(strsim::jaro_winkler(wanted, last) - 0.001)
}

/// The names as a question to append to the text of a failure; empty if there are none.
pub(crate) fn did_you_mean(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => format!(" Did you mean {one}?"),
        [first @ .., last] => format!(" Did you mean {} or {last}?", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_offered_nearest_first() {
        let names = ["Asia/Tokyo", "Europe/Berlin", "Africa/Tunis", "notes.txt", "note.md"];
        for (wanted, expected) in [
            ("tokyo", vec!["Asia/Tokyo"]),
            ("Asia/Tokio", vec!["Asia/Tokyo"]),
            ("note.txt", vec!["notes.txt", "note.md"]),
            ("qqqqqq", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(nearest(wanted, names, 2), expected, "{wanted}");
        }
    }

    #[test]
    fn a_question_names_them() {
        assert_eq!(did_you_mean(&[]), "");
        assert_eq!(did_you_mean(&["a"]), " Did you mean a?");
        assert_eq!(did_you_mean(&["a", "b", "c"]), " Did you mean a, b or c?");
    }
}
