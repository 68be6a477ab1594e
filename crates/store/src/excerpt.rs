//! Excerpts of texts for lists: the first words, and the words around a search hit.

use belay_protocol::store::TITLE_MAX_CHARS;

/// Characters of a snippet before its hit.
const BEFORE: usize = 60;

/// Characters of a snippet from its hit on.
const AFTER: usize = 140;

/// The first words of a text, on one line.
pub(crate) fn title(text: &str) -> String {
    let line = one_line(text);
    match line.char_indices().nth(TITLE_MAX_CHARS) {
        None => line,
        Some(_) => line.chars().take(TITLE_MAX_CHARS - 1).chain(['…']).collect(),
    }
}

/// The words around the first word that begins with one of the terms, which are in lower case; the beginning of the
/// text if there is none.
pub(crate) fn snippet(text: &str, terms: &[String]) -> String {
    let text = one_line(text);
    let hit = words(&text).find(|(_, word)| terms.iter().any(|term| begins(word, term))).map_or(0, |(at, _)| at);
    let start = text[..hit].char_indices().rev().nth(BEFORE - 1).map_or(0, |(at, _)| at);
    let end = text[hit..].char_indices().nth(AFTER).map_or(text.len(), |(at, _)| hit + at);
    let (cut_before, cut_after) = (if start > 0 { "…" } else { "" }, if end < text.len() { "…" } else { "" });
    format!("{cut_before}{}{cut_after}", &text[start..end])
}

fn begins(word: &str, term: &str) -> bool {
    word.to_lowercase().starts_with(term)
}

/// The words of a text, each with its offset.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let between = |c: char| !c.is_alphanumeric();
    let start = text.as_ptr() as usize;
    text.split(between).filter(|word| !word.is_empty()).map(move |word| (word.as_ptr() as usize - start, word))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_title_is_one_line_of_the_first_words() {
        assert_eq!(title("  what\n time\tis it? "), "what time is it?");
        let long = title(&"ключ ".repeat(40));
        assert_eq!((long.chars().count(), long.ends_with('…')), (TITLE_MAX_CHARS, true));
        assert_eq!(title(&"x".repeat(TITLE_MAX_CHARS)), "x".repeat(TITLE_MAX_CHARS));
    }

    #[test]
    fn a_snippet_shows_the_words_around_the_first_hit() {
        let long = format!("{} Deployed to prod {}", "before ".repeat(40), "after ".repeat(40));
        let shown = snippet(&long, &terms(&["deploy"]));
        assert!(shown.starts_with('…') && shown.ends_with('…') && shown.contains("before Deployed to prod"), "{shown}");
        assert_eq!(shown.chars().count(), BEFORE + AFTER + 2);
        assert_eq!(snippet("a short text", &terms(&["nothing"])), "a short text");
        assert_eq!(snippet("🗝 ключ\nот 🗝", &terms(&["ключ"])), "🗝 ключ от 🗝");
    }
}
