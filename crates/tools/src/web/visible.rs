//! Words of the outside, without the characters that people do not see.

/// Leaves away what is written for machines alone: control characters but line end and tab, invisible letters (the
/// "tag" block, variation selectors of its kind), marks that turn the direction of writing, and zero-width characters.
///
/// Joiners within emoji and scripts go too: a page is read for what it says, and a hidden message is worse than a family
/// of four shown as four.
pub(super) fn visible(text: String) -> String {
    if text.chars().all(is_visible) { text } else { text.chars().filter(|c| is_visible(*c)).collect() }
}

fn is_visible(c: char) -> bool {
    match c {
        '\n' | '\t' => true,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180e}' | '\u{feff}' => false,
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => false,
        '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}' => false,
        _ => !c.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_seen_stays() {
        for (given, seen) in [
            ("plain\n\ttext", "plain\n\ttext"),
            ("grün 日本 עברית 🦀", "grün 日本 עברית 🦀"),
            ("a\u{1b}[31mb\r\n", "a[31mb\n"),
            ("a\u{e0044}\u{e004f}b", "ab"),
            ("zero\u{200b}width\u{feff}", "zerowidth"),
            ("\u{202e}turned\u{202c}", "turned"),
            ("soft\u{ad}hyphen", "softhyphen"),
        ] {
            assert_eq!(visible(given.to_owned()), seen);
        }
    }
}
