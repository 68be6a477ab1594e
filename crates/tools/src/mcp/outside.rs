//! Words of the outside: what a server says of itself, made fit to be shown.

/// Whether a character is read by a model and not seen by a person, or changes how its neighbours look: control
/// characters, and those of Unicode that have no width, turn the direction of writing, or are tags.
///
/// Source: Unicode, "Default_Ignorable_Code_Point" and "Bidi_Control".
pub(super) fn is_hidden(c: char) -> bool {
    let control = c.is_control() && !matches!(c, '\n' | '\t');
    control
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// The text without hidden characters, cut to so many bytes with a mark at the cut.
pub(super) fn shown(text: &str, max_bytes: usize) -> String {
    let mut shown = String::new();
    for c in text.trim().chars().filter(|c| !is_hidden(*c)) {
        if shown.len() + c.len_utf8() > max_bytes {
            shown.push_str(" […]");
            break;
        }
        shown.push(c);
    }
    shown
}

/// The same in one line.
pub(super) fn line(text: &str, max_bytes: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    shown(&words.join(" "), max_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_taken_out_and_long_texts_cut() {
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
