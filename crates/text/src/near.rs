//! "Did you mean": the known names that are nearest to an unknown one.
//!
//! One metric with one bar: the Damerau-Levenshtein distance (letters added, left out, changed or swapped), at most a third of
//! the longer of the two names. Beyond that it would be a guess. Case does not count, nor whether a blank, `_` or `-` parts
//! two words. A name is also compared by its last part (`Asia/Tokyo` by `Tokyo`). If no name is near, the names that begin
//! with the wanted one are offered.

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

/// Up to `most` of the known names that are nearest to `wanted`, all at the same distance, in the order of the alphabet. If
/// none is near, up to `most` names that begin with it.
pub fn nearest_names<'a, S: AsRef<str> + ?Sized + 'a>(
    wanted: &str,
    known: impl IntoIterator<Item = &'a S>,
    most: usize,
) -> Vec<&'a str> {
    let wanted = folded(wanted);
    let names: Vec<&str> = known.into_iter().map(AsRef::as_ref).collect();
    let mut near: Vec<(usize, &str)> =
        names.iter().filter_map(|name| Some((distance(&wanted, name)?, *name))).collect();
    if near.is_empty() {
        near = names.iter().filter(|name| begins_with(name, &wanted)).map(|name| (0, *name)).collect();
    }
    near.sort_unstable();
    let least = near.first().map_or(0, |(distance, _)| *distance);
    near.into_iter().take_while(|(distance, _)| *distance == least).take(most).map(|(_, name)| name).collect()
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

/// Whether a name, or its last part, begins with the wanted one.
fn begins_with(name: &str, wanted: &str) -> bool {
    let name = folded(name);
    let last = name.rsplit('/').next().unwrap_or(&name);
    wanted.chars().count() >= BEGINNING_MIN && [name.as_str(), last].iter().any(|part| part.starts_with(wanted))
}

/// The distance to a name, or to its last part; `None`: neither is near.
fn distance(wanted: &str, name: &str) -> Option<usize> {
    let name = folded(name);
    let last = name.rsplit('/').next().unwrap_or(&name);
    let distance = |name: &str| {
        let (one, other) = (wanted.chars().count(), name.chars().count());
        let most = one.max(other) / 3;
        // The difference in length is the least distance there can be, and needs no table of both.
        (one.abs_diff(other) <= most).then(|| damerau_levenshtein(wanted, name)).filter(|distance| *distance <= most)
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
