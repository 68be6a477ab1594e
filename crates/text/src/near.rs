//! "Did you mean": the known names that are nearest to an unknown one.
//!
//! One metric with one bar: the Damerau-Levenshtein distance (letters added, left out, changed or swapped), at most a third of
//! the longer of the two names. Beyond that it would be a guess. A name that begins with the wanted one is near too. Case does not count, nor whether a blank, `_` or `-` parts
//! two words. A name is also compared by its last part (`Asia/Tokyo` by `Tokyo`).

use strsim::{damerau_levenshtein, normalized_levenshtein};

/// Characters from which the beginning of a name suggests that name.
const BEGINNING_MIN: usize = 3;

/// The known name that is nearest to `wanted`; `None`: none is near. Of two that are equally near, the first in the alphabet.
pub fn nearest<'a, S: AsRef<str> + ?Sized + 'a>(
    wanted: &str,
    known: impl IntoIterator<Item = &'a S>,
) -> Option<&'a str> {
    nearest_names(wanted, known, 1).first().copied()
}

/// Up to `most` of the known names that are near to `wanted`, the nearest first, then in the order of the alphabet.
pub fn nearest_names<'a, S: AsRef<str> + ?Sized + 'a>(
    wanted: &str,
    known: impl IntoIterator<Item = &'a S>,
    most: usize,
) -> Vec<&'a str> {
    let wanted = folded(wanted);
    let names = known.into_iter().map(AsRef::as_ref);
    let mut near: Vec<(usize, &str)> = names.filter_map(|name| Some((distance(&wanted, name)?, name))).collect();
    near.sort_unstable();
    near.into_iter().take(most).map(|(_, name)| name).collect()
}

/// The names as a question for the end of a sentence, with a blank before it; empty when there are none.
pub fn did_you_mean(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => format!(" Did you mean {one}?"),
        [first @ .., last] => format!(" Did you mean {} or {last}?", first.join(", ")),
    }
}

/// How much two lines are alike, from 0 (nothing in common) to 1 (the same). For texts, where a distance says little without
/// the length.
pub fn likeness(one: &str, other: &str) -> f64 {
    normalized_levenshtein(one, other)
}

fn folded(name: &str) -> String {
    name.to_lowercase().replace([' ', '-'], "_")
}

/// The distance to a name, or to its last part; `None`: neither is near.
fn distance(wanted: &str, name: &str) -> Option<usize> {
    let name = folded(name);
    let last = name.rsplit('/').next().unwrap_or(&name);
    let distance = |name: &str| {
        let (one, other) = (wanted.chars().count(), name.chars().count());
        let most = one.max(other) / 3;
        // The difference in length is the least distance there can be, and needs no table of both.
        let typed = (one.abs_diff(other) <= most).then(|| damerau_levenshtein(wanted, name));
        let begun = (one >= BEGINNING_MIN && name.starts_with(wanted)).then(|| other - one);
        typed.filter(|distance| *distance <= most).or(begun)
    };
    [distance(&name), distance(last)].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_are_offered() {
        let names = [
            "Asia/Tokyo",
            "America/New_York",
            "Europe/Berlin",
            "Africa/Tunis",
            "notes.txt",
            "note.md",
            "node.txt",
            "Europe/Dublin",
        ];
        for (wanted, expected) in [
            ("tokyo", vec!["Asia/Tokyo"]),
            ("Asia/Tokio", vec!["Asia/Tokyo"]),
            ("Europe/Berln", vec!["Europe/Berlin"]),
            ("new york", vec!["America/New_York"]),
            ("note.txt", vec!["node.txt", "notes.txt"]),
            ("notes", vec!["notes.txt"]),
            ("Eur", vec!["Europe/Berlin", "Europe/Dublin"]),
            ("qqqqqq", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(nearest_names(wanted, &names, 2), expected, "{wanted}");
        }
    }

    #[test]
    fn a_slip_is_mended_and_another_word_is_not_guessed_at() {
        let known =
            ["steps", "tool_loop", "echo", "read", "never", "/model", "claude-sonnet-4-6", "before_tool_call", "tool"];
        for (wanted, expected) in [
            ("stpes", Some("steps")),
            ("tool_loops", Some("tool_loop")),
            ("tol", Some("tool")),
            ("ecko", Some("echo")),
            ("raed", Some("read")),
            ("nevr", Some("never")),
            ("/modelfoo", Some("/model")),
            ("claude_sonet-4.6", Some("claude-sonnet-4-6")),
            ("before_tool_cal", Some("before_tool_call")),
            ("lunch", None),
            ("llama", None),
            ("zzz", None),
            ("", None),
        ] {
            assert_eq!(nearest(wanted, &known), expected, "{wanted}");
        }
        assert_eq!(nearest(&"x".repeat(1 << 20), &known), None, "a long word costs nothing");
        assert_eq!(nearest("bat", &["cat", "bar"].map(str::to_owned)), Some("bar"), "the first in the alphabet");
    }

    #[test]
    fn a_question_names_them() {
        assert_eq!(did_you_mean(&[]), "");
        assert_eq!(did_you_mean(&["a"]), " Did you mean a?");
        assert_eq!(did_you_mean(&["a", "b", "c"]), " Did you mean a, b or c?");
    }
}
