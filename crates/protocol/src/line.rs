//! Untrusted text on one line, for records, logs and people.

/// The text on one line of at most `max_chars` characters. White space and control characters become single blanks.
/// Invisible and direction-changing characters are removed. A longer text is cut and ends with `…`.
pub fn plain_line(text: &str, max_chars: usize) -> String {
    let words = text.split(|c: char| c.is_control() || c.is_whitespace()).filter(|word| !word.is_empty());
    let mut line = String::new();
    let mut chars = 0;
    for word in words {
        let blank = (!line.is_empty()).then_some(' ');
        for c in blank.into_iter().chain(belay_text::removed(word).chars()) {
            if chars == max_chars {
                line.pop();
                line.push('…');
                return line;
            }
            line.push(c);
            chars += 1;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_words_become_one_bounded_line_that_shows_what_it_says() {
        for (text, line) in [
            ("", ""),
            (" a\r\n\tb   c\u{7}d ", "a b c d"),
            ("\u{202e}e\u{ad}v\u{e0041}il\u{200b}", "evil"),
            ("12345678", "12345678"),
            ("123456789", "1234567…"),
            ("1234567 9", "1234567…"),
        ] {
            assert_eq!(plain_line(text, 8), line, "{text:?}");
        }
    }
}
