//! Cleans texts of a server, which are untrusted content, before they are shown.

use belay_text::removed;

/// Removes hidden characters and cuts the text to at most this many bytes, with a mark at the cut.
pub(super) fn shown(text: &str, max_bytes: usize) -> String {
    let mut shown = String::new();
    for c in removed(text.trim()).chars() {
        if shown.len() + c.len_utf8() > max_bytes {
            shown.push_str(" […]");
            break;
        }
        shown.push(c);
    }
    shown
}

/// The same, on one line.
pub(super) fn line(text: &str, max_bytes: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    shown(&words.join(" "), max_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_removed_and_long_texts_cut() {
        for (text, expected) in [
            ("plain\nand\ttabbed", "plain\nand\ttabbed"),
            ("a\u{1b}[31mred\u{7}", "a[31mred"),
            ("a\u{200b}b\u{202e}c\u{e0041}d\u{fe0f}", "abcd"),
            ("  größer  ", "größer"),
            ("12345678901", "1234567890 […]"),
            ("123456789ß", "123456789 […]"),
        ] {
            let max = if expected.contains("[…]") { 10 } else { 100 };
            assert_eq!(shown(text, max), expected, "{text:?}");
        }
        assert_eq!(line(" a\n b\t\u{200b}c ", 100), "a b c");
    }
}
