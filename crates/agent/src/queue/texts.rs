//! What the model reads of several messages that get one turn.

use crate::dispatcher::MAX_TEXT_BYTES;

/// Longest line of a digest, in characters.
const LINE_CHARS: usize = 160;

/// The user message of a turn that answers several: a digest of those that were shortened, then the others, numbered where
/// there are several.
pub(crate) fn one_text(shortened: &[&str], whole: &[&str]) -> String {
    let mut text = String::new();
    if !shortened.is_empty() {
        let (n, messages) = (shortened.len(), if shortened.len() == 1 { "message" } else { "messages" });
        text.push_str(&format!("[{n} {messages} came while you were busy; in short:]\n"));
        shortened.iter().for_each(|message| text.push_str(&format!("- {}\n", line(message))));
        text.push('\n');
    }
    match whole {
        [one] => text.push_str(one),
        several => {
            text.push_str("[These messages arrived while you were busy, in this order. Answer all of them:]");
            for (at, message) in several.iter().enumerate() {
                text.push_str(&format!("\n{}. {message}", at + 1));
            }
        }
    }
    text
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

/// A message in one line.
fn line(message: &str) -> String {
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
    fn what_is_shortened_comes_first_and_several_are_numbered() {
        for (shortened, whole, expected) in [
            (vec![], vec!["one"], "one"),
            (
                vec![],
                vec!["one", "two\nlines"],
                "[These messages arrived while you were busy, in this order. Answer all of them:]\n1. one\n2. two\nlines",
            ),
            (vec!["old\n news"], vec!["one"], "[1 message came while you were busy; in short:]\n- old news\n\none"),
            (
                vec!["a", "b"],
                vec!["c", "d"],
                "[2 messages came while you were busy; in short:]\n- a\n- b\n\n[These messages arrived while you were busy, \
                 in this order. Answer all of them:]\n1. c\n2. d",
            ),
        ] {
            assert_eq!(one_text(&shortened, &whole), expected);
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
