//! The text that the model reads if several messages get one turn.

use crate::queue::MAX_TEXT_BYTES;

/// Maximum length of a digest line, in characters.
const LINE_CHARS: usize = 160;

/// The user message for several messages: a digest of the shortened ones, one line each, then the others, numbered if
/// there are several. It contains only text of the person.
pub(crate) fn one_text(shortened: &[impl AsRef<str>], whole: &[impl AsRef<str>]) -> String {
    let mut parts: Vec<String> = Vec::new();
    if !shortened.is_empty() {
        let lines: Vec<String> = shortened.iter().map(|message| format!("- {}", message.as_ref())).collect();
        parts.push(lines.join("\n"));
    }
    parts.push(match whole {
        [one] => one.as_ref().to_owned(),
        several => {
            let numbered = several.iter().enumerate().map(|(at, message)| format!("{}. {}", at + 1, message.as_ref()));
            numbered.collect::<Vec<_>>().join("\n")
        }
    });
    parts.join("\n\n")
}

/// The notice for the model about a user message that holds several messages. It is not in the person's name. `None`:
/// it holds one.
pub(crate) fn notice(shortened: usize, whole: usize) -> Option<String> {
    let lines = match shortened {
        0 => None,
        1 => Some("its first line, which begins with \"- \", is an earlier message cut to one line".to_owned()),
        n => Some(format!("its first {n} lines, which begin with \"- \", are earlier messages, each cut to one line")),
    };
    let numbered = (whole > 1).then(|| format!("its {whole} numbered parts are messages in the order they arrived"));
    let parts: Vec<String> = lines.into_iter().chain(numbered).collect();
    let what = parts.join(", and ");
    (!what.is_empty()).then(|| {
        format!("The user message above holds several messages that arrived while you were busy: {what}. Answer all of them.")
    })
}

/// How many messages of these lengths in bytes, from the first on, fit into one; at least one.
pub(crate) fn fits_in(messages: impl IntoIterator<Item = usize>) -> usize {
    let mut left = MAX_TEXT_BYTES;
    let fitting = messages.into_iter().take_while(|bytes| match left.checked_sub(*bytes) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    });
    fitting.count().max(1)
}

/// The message as one bounded line.
pub(crate) fn line(message: &str) -> String {
    let words = message.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.chars().count() <= LINE_CHARS {
        return words;
    }
    words.chars().take(LINE_CHARS - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shortened_comes_first_and_several_are_numbered_in_the_persons_words_alone() {
        for (shortened, whole, text, told) in [
            (vec![], vec!["one"], "one", None),
            (
                vec![],
                vec!["one", "two\nlines"],
                "1. one\n2. two\nlines",
                Some("its 2 numbered parts are messages in the order they arrived"),
            ),
            (
                vec!["old news"],
                vec!["one"],
                "- old news\n\none",
                Some("its first line, which begins with \"- \", is an earlier message cut to one line"),
            ),
            (
                vec!["a", "b"],
                vec!["c", "d"],
                "- a\n- b\n\n1. c\n2. d",
                Some(
                    "its first 2 lines, which begin with \"- \", are earlier messages, each cut to one line, and its 2 numbered \
                     parts are messages in the order they arrived",
                ),
            ),
        ] {
            assert_eq!(one_text(&shortened, &whole), text);
            let expected = told.map(|told| {
                format!("The user message above holds several messages that arrived while you were busy: {told}. Answer all of them.")
            });
            assert_eq!(notice(shortened.len(), whole.len()), expected);
        }
    }

    #[test]
    fn a_line_has_at_most_160_characters() {
        assert_eq!(line(&"ä".repeat(160)), "ä".repeat(160));
        assert_eq!(line(&"ä".repeat(161)), format!("{}…", "ä".repeat(159)));
    }

    #[test]
    fn no_more_is_put_into_one_message_than_a_message_may_have() {
        let half = "x".repeat(MAX_TEXT_BYTES / 2);
        for (messages, expected) in [
            (vec!["a", "b"], 2),
            (vec![half.as_str(), half.as_str()], 2),
            (vec![half.as_str(), half.as_str(), "a"], 2),
            (vec![], 1),
        ] {
            assert_eq!(fits_in(messages.iter().map(|message| message.len())), expected);
        }
    }
}
