//! Lists of words and phrases. They are written as one text, because sixty words are easier to read in five lines than
//! in sixty. They are split at compile time, because every word of every answer is looked up in them.

/// Makes a list of words from a text with single spaces between them.
macro_rules! words {
    ($text:literal) => {{
        const TEXT: &str = $text;
        const LIST: [&str; $crate::intent::words::count(TEXT, b' ')] = $crate::intent::words::cut(TEXT, b' ');
        $crate::intent::words::Words(&LIST)
    }};
}

/// Makes a list of phrases from a text with `|` between them.
macro_rules! phrases {
    ($text:literal) => {{
        const TEXT: &str = $text;
        const LIST: [&str; $crate::intent::words::count(TEXT, b'|')] = $crate::intent::words::cut(TEXT, b'|');
        $crate::intent::words::Phrases(&LIST)
    }};
}

pub(super) use {phrases, words};

/// A list of words.
#[derive(Clone, Copy)]
pub(super) struct Words(pub(super) &'static [&'static str]);

impl Words {
    /// Iterates over the words of the list.
    pub(super) fn iter(self) -> impl Iterator<Item = &'static str> {
        self.0.iter().copied()
    }

    /// Whether the list contains the word.
    pub(super) fn has(self, word: &str) -> bool {
        self.0.contains(&word)
    }

    /// Whether the list contains one of the words.
    pub(super) fn has_any(self, words: &[&str]) -> bool {
        words.iter().any(|word| self.has(word))
    }
}

/// A list of phrases, each of one or more words.
#[derive(Clone, Copy)]
pub(super) struct Phrases(pub(super) &'static [&'static str]);

impl Phrases {
    /// Returns the words behind the phrase, if `words` begin with one of the phrases.
    pub(super) fn strip<'w, 't>(self, words: &'w [&'t str]) -> Option<&'w [&'t str]> {
        let first = words.first()?;
        self.0.iter().filter(|phrase| phrase.starts_with(first)).find_map(|phrase| {
            let mut rest = words;
            for part in phrase.split(' ') {
                rest = rest.strip_prefix(&[part])?;
            }
            Some(rest)
        })
    }
}

/// The number of parts that `separator` splits a text into.
pub(super) const fn count(text: &str, separator: u8) -> usize {
    let mut count = 1;
    let mut at = 0;
    while at < text.len() {
        if text.as_bytes()[at] == separator {
            count += 1;
        }
        at += 1;
    }
    count
}

/// Splits a text into its parts, without white space around them.
pub(super) const fn cut<const N: usize>(text: &'static str, separator: u8) -> [&'static str; N] {
    let mut parts = [""; N];
    let mut rest = text;
    let mut part = 0;
    while part < N {
        let mut end = 0;
        while end < rest.len() && rest.as_bytes()[end] != separator {
            end += 1;
        }
        let (head, tail) = rest.split_at(end);
        parts[part] = head.trim_ascii();
        rest = if tail.is_empty() { tail } else { tail.split_at(1).1 };
        part += 1;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_into_its_words_and_phrases() {
        const LIST: Words = words!(
            "one two \
             three"
        );
        assert_eq!(LIST.0, ["one", "two", "three"]);
        const PHRASES: Phrases = phrases!("let me | i'll | i will");
        assert_eq!(PHRASES.0, ["let me", "i'll", "i will"]);
        assert_eq!(PHRASES.strip(&["i", "will", "go"]), Some(&["go"][..]));
        assert_eq!(PHRASES.strip(&["i", "go"]), None);
        assert_eq!(PHRASES.strip(&["le", "me"]), None);
        assert_eq!(PHRASES.strip(&[]), None);
    }
}
