//! Explains why a piece of text was not found, with the most similar lines, so that a model can correct its edit.

/// Lowest similarity of a suggested line, from 0 to 1. 0.8: one slip in a short line, a few in a long one.
const MIN_SIMILARITY: f64 = 0.8;
/// Most lines that are compared. More would take seconds in a large file.
const MAX_COMPARED: usize = 5_000;
/// Longest line that is compared, in bytes.
const MAX_LINE_BYTES: usize = 200;

/// The failure text for `old`, which does not occur in `text`.
pub(super) fn explain_miss(path: &str, text: &str, old: &str) -> String {
    let head = format!("The old text does not occur in {path:?}, so nothing was changed.");
    if text.is_empty() {
        return format!("{head} The file is empty.");
    }
    if text.contains("\r\n") && text.replace("\r\n", "\n").contains(old) {
        return format!("{head} The file ends its lines with \\r\\n; the old text needs the same.");
    }
    if let Some(line) = same_but_for_white_space(text, old) {
        return format!(
            "{head} At line {line} there is the same text with other white space (indentation, tabs or line breaks). \
             read_file shows it as it is."
        );
    }
    match nearest_line(text, old) {
        Some((number, line)) => format!("{head} Nearest to its first line is line {number}: {line:?}."),
        None => format!("{head} Nothing in the file is near to it; read_file shows what is there."),
    }
}

/// The line where the words of `old` begin, in the same order, with any white space between them.
fn same_but_for_white_space(text: &str, old: &str) -> Option<usize> {
    let wanted: Vec<&str> = old.split_whitespace().collect();
    if wanted.is_empty() {
        return None;
    }
    let words: Vec<(usize, &str)> = text
        .lines()
        .enumerate()
        .flat_map(|(index, line)| line.split_whitespace().map(move |word| (index + 1, word)))
        .collect();
    words.windows(wanted.len()).find(|window| window.iter().map(|(_, word)| word).eq(&wanted)).map(|window| window[0].0)
}

fn nearest_line<'a>(text: &'a str, old: &str) -> Option<(usize, &'a str)> {
    let wanted = old.lines().map(str::trim).find(|line| !line.is_empty())?;
    if wanted.len() > MAX_LINE_BYTES {
        return None;
    }
    text.lines()
        .take(MAX_COMPARED)
        .enumerate()
        .filter(|(_, line)| line.len() <= MAX_LINE_BYTES)
        .map(|(index, line)| (strsim::normalized_levenshtein(wanted, line.trim()), index + 1, line))
        .filter(|(score, _, _)| *score >= MIN_SIMILARITY)
        .max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(&a.1)))
        .map(|(_, number, line)| (number, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_names_the_most_similar_line() {
        for (text, old, expected_text) in [
            ("", "a", "The file is empty."),
            ("one\r\ntwo\r\n", "one\ntwo", "ends its lines with \\r\\n"),
            (
                "fn a() {\n\tlet x = 1;\n}\n",
                "    let x = 1;\n}",
                "At line 2 there is the same text with other white space",
            ),
            ("alpha\nlet total = sum(a);\n", "let totl = sum(a);", "is line 2: \"let total = sum(a);\"."),
            ("alpha\nbeta\n", "something else altogether", "Nothing in the file is near to it"),
            ("alpha\n", "\n\n\n", "Nothing in the file is near to it"),
        ] {
            let message = explain_miss("f", text, old);
            assert!(message.contains(expected_text), "{old:?}: {message}");
        }
    }
}
