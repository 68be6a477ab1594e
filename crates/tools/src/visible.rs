//! Characters that a person does not see, or that change how the rest of a line is seen.

/// Whether a character shows nothing or turns the direction of writing: a name or a command that has one may be another
/// than it looks.
pub(crate) fn is_hidden(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e00ff}')
        || matches!(
            c,
            '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2800}'
        )
        || matches!(c, '\u{3164}' | '\u{ffa0}' | '\u{1d173}'..='\u{1d17a}' | '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{3000}')
        || matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{fffe}' | '\u{ffff}' | '\u{e0100}'..='\u{e01ef}')
}

/// Whether a new name may have this character. The two joiners (U+200C, U+200D) belong to how some scripts and many
/// emoji are written.
pub(crate) fn may_be_in_a_name(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}') || !(c.is_control() || is_hidden(c))
}

/// The text on one line, with everything that is not seen escaped.
pub(crate) fn escaped(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_hidden(c) || c == '\\' {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_escaped() {
        for (text, expected) in [
            ("plain text", "plain text"),
            ("ключ 🗝", "ключ 🗝"),
            ("a\nb\tc", "a\\nb\\tc"),
            ("txt.\u{202e}exe", "txt.\\u{202e}exe"),
            ("zero\u{200b}width", "zero\\u{200b}width"),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("back\\slash", "back\\\\slash"),
        ] {
            assert_eq!(escaped(text), expected);
        }
    }

    #[test]
    fn names_may_have_joiners_and_nothing_else_that_hides() {
        assert!("نامه\u{200c}ها 👨\u{200d}👩.txt".chars().all(may_be_in_a_name));
        for c in ['\n', '\0', '\u{202e}', '\u{feff}', '\u{2028}', '\u{7f}', '\u{e0041}'] {
            assert!(!may_be_in_a_name(c), "{c:?}");
        }
    }
}
