//! A pasted text as it is taken.

/// The text of a paste: lines end with a line feed, escape sequences and other control characters are left out, and so is the
/// line end behind the last line. A terminal would carry out what is shown of them.
pub fn pasted(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let (mut taken, mut chars) = (String::with_capacity(text.len()), text.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            // ECMA-48: a control sequence has parameters below `@`, and ends with a character from `@` to `~`.
            '\x1b' if chars.next_if_eq(&'[').is_some() => {
                while chars.next_if(|c| (' '..'@').contains(c)).is_some() {}
                let _ = chars.next_if(|c| ('@'..='~').contains(c)); // a sequence may be cut off
            }
            '\n' | '\t' => taken.push(c),
            c if c.is_control() => {}
            c => taken.push(c),
        }
    }
    if taken.ends_with('\n') {
        taken.pop();
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_tabs_stay_and_control_characters_do_not() {
        for (text, expected) in [
            ("one\r\ntwo\rthree\n", "one\ntwo\nthree"),
            ("a\tb\n\n", "a\tb\n"),
            ("\x1b[1;31mred\x1b[0m \x07\x1b]0;title\x07\u{9b}2J", "red ]0;title2J"),
            ("\x1b[", ""),
            ("\x1b[31", ""),
            ("ключ 🗝", "ключ 🗝"),
        ] {
            assert_eq!(pasted(text), expected, "{text:?}");
        }
    }
}
