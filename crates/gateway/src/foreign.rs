//! Texts of clients within errors.

/// Most characters of such a text.
const MAX: usize = 200;
/// Of a longer text: the characters of its beginning, and of its end.
const ENDS: (usize, usize) = (120, MAX - 120 - 1);

/// A text that a client has sent, or an error with such a text, as an answer shows it: at most 200 characters, and those that
/// are not printed are escaped. A longer text has its beginning and its end.
pub(crate) fn shown(text: &str) -> String {
    let whole: String = text.chars().take(MAX + 1).flat_map(escaped).collect();
    if text.chars().nth(MAX).is_none() && whole.chars().count() <= MAX {
        return whole;
    }
    let mut end: Vec<char> = text.chars().rev().take(ENDS.1).collect();
    end.reverse();
    let end: Vec<char> = end.into_iter().flat_map(escaped).collect();
    let end = &end[end.len().saturating_sub(ENDS.1)..];
    whole.chars().take(ENDS.0).chain(['…']).chain(end.iter().copied()).collect()
}

/// Quotation marks and backslashes stay as they are: errors have them around words.
fn escaped(c: char) -> impl Iterator<Item = char> {
    let (plain, escape) = match c {
        '"' | '\'' | '\\' => (Some(c), None),
        _ => (None, Some(c.escape_debug())),
    };
    plain.into_iter().chain(escape.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_a_client_is_short_and_has_no_control_characters() {
        for (text, expected) in [
            ("", ""),
            ("metadata.session", "metadata.session"),
            ("a\nb\u{7}\u{202e}c\u{0}", "a\\nb\\u{7}\\u{202e}c\\0"),
            ("string \"é\", expected \\ a 'b'", "string \"é\", expected \\ a 'b'"),
        ] {
            assert_eq!(shown(text), expected);
        }
        for (text, end) in [("x".repeat(MAX), "xx"), (format!("{}, expected a text", "y".repeat(900_000)), "a text")] {
            let shown = shown(&text);
            assert!(shown.chars().count() == MAX && shown.ends_with(end), "{shown}");
        }
        let bells = shown(&"\u{7}".repeat(MAX));
        assert!(bells.chars().count() == MAX && !bells.contains('\u{7}'), "{bells}");
    }
}
