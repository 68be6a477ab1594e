//! The silent token, by which a model gives no answer: recognised in a whole answer, and withheld while an answer
//! streams. Pure.

pub use belay_protocol::SILENT_TOKEN;

/// Maximum punctuation marks around a token that is the whole answer.
const MARKS_MAX: usize = 4;
/// Maximum withheld text, in bytes: about two dozen tokens. A longer repetition is shown.
const HELD_MAX_BYTES: usize = 256;

/// Whether an answer is only the token: once or repeated, with a few punctuation marks around it.
pub(crate) fn is_silent(text: &str) -> bool {
    let seen = read(text, true);
    seen.tokens > 0 && seen.whole
}

/// Removes the token at the end of an answer. In quotes or within a sentence, it is part of the answer.
pub(crate) fn without_trailing(text: &str) -> &str {
    let (mut kept, mut rest) = (text, text);
    while let Some(before) = rest.trim_end().strip_suffix(SILENT_TOKEN) {
        rest = before;
        if is_border(before) {
            kept = before.trim_end();
        }
    }
    kept
}

/// Withholds text that may become the token, so that no reader sees a part of it. The result does not depend on the
/// fragments.
#[derive(Debug, Default)]
pub(crate) struct Withhold {
    held: String,
    /// Whether anything but white space was passed on.
    shown: bool,
    /// The last character that was passed on.
    last: Option<char>,
}

impl Withhold {
    /// Adds a fragment and returns the text that is certain to be part of the answer.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        let mut out = String::with_capacity(piece.len());
        for c in piece.chars() {
            self.held.push(c);
            while !self.may_be_token() {
                let first = self.held.remove(0);
                self.shown |= !first.is_whitespace();
                self.last = Some(first);
                out.push(first);
            }
        }
        out
    }

    /// Ends the answer: returns the withheld text, unless it is the token.
    pub(crate) fn finish(&mut self) -> String {
        let Self { held, shown, .. } = std::mem::take(self);
        let seen = read(&held, !shown);
        if seen.tokens > 0 && seen.whole { String::new() } else { held }
    }

    /// Whether the withheld text may become the token, or is it. Empty text may.
    fn may_be_token(&self) -> bool {
        if self.held.is_empty() {
            return true;
        }
        let begins = !self.held.starts_with(char::is_whitespace);
        let stands = self.last.is_none_or(is_border_char);
        begins && stands && self.held.len() <= HELD_MAX_BYTES && read(&self.held, !self.shown).fits
    }
}

/// Occurrence of the token in a text.
struct Seen {
    /// Number of complete tokens.
    tokens: usize,
    /// Whether the text contains nothing else.
    whole: bool,
    /// Whether the text could be completed so that it contains nothing else.
    fits: bool,
}

/// Parses tokens separated by white space; with `marks`, also a few punctuation marks.
fn read(text: &str, marks: bool) -> Seen {
    let (mut rest, mut tokens, mut marks_left) = (text, 0, if marks { MARKS_MAX } else { 0 });
    loop {
        let Some(c) = rest.chars().next() else { return Seen { tokens, whole: true, fits: true } };
        if let Some(behind) = rest.strip_prefix(SILENT_TOKEN) {
            tokens += 1;
            rest = behind;
        } else if c.is_whitespace() {
            rest = &rest[c.len_utf8()..];
        } else if marks_left > 0 && c.is_ascii_punctuation() && c != '_' {
            marks_left -= 1;
            rest = &rest[1..];
        } else {
            return Seen { tokens, whole: false, fits: SILENT_TOKEN.starts_with(rest) };
        }
    }
}

fn is_border(before: &str) -> bool {
    before.chars().next_back().is_none_or(is_border_char)
}

/// Whether a token may follow this character: not within a word, and not in quotes or code.
fn is_border_char(c: char) -> bool {
    !(c.is_alphanumeric() || "_`\"'*".contains(c))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_token_alone_is_silence() {
        for (text, silent) in [
            ("NO_REPLY", true),
            (" NO_REPLY. ", true),
            ("`NO_REPLY`", true),
            ("**NO_REPLY**", true),
            ("NO_REPLY NO_REPLY\nNO_REPLY", true),
            ("NO_REPLYNO_REPLY", true),
            ("***NO_REPLY***", false),
            ("NO_REPLY is the token", false),
            ("NO_REPLYS", false),
            ("NO", false),
            ("no_reply", false),
            ("", false),
            ("....", false),
        ] {
            assert_eq!(is_silent(text), silent, "{text:?}");
        }
    }

    #[test]
    fn a_token_at_the_end_is_taken_away_and_one_in_the_middle_stays() {
        for (text, kept) in [
            ("Done.\n\nNO_REPLY", "Done."),
            ("Done.NO_REPLY \n", "Done."),
            ("Done. NO_REPLY NO_REPLY", "Done."),
            ("say `NO_REPLY`", "say `NO_REPLY`"),
            ("NO_REPLY is the token ", "NO_REPLY is the token "),
            ("XNO_REPLY", "XNO_REPLY"),
            ("plain", "plain"),
        ] {
            assert_eq!(without_trailing(text), kept, "{text:?}");
        }
    }

    /// The text passed on after each fragment, and at the end.
    fn stream(pieces: &[&str]) -> Vec<String> {
        let mut filter = Withhold::default();
        let mut out: Vec<String> = pieces.iter().map(|piece| filter.push(piece)).collect();
        out.push(filter.finish());
        out
    }

    #[test]
    fn nobody_reads_a_part_of_the_token() {
        for (pieces, expected) in [
            (vec!["NO_", "REPLY"], vec!["", "", ""]),
            (vec!["N", "O", "_REPLY", "\n"], vec!["", "", "", "", ""]),
            (vec!["NO", " PROBLEM"], vec!["", "NO PROBLEM", ""]),
            (vec!["N", "ice"], vec!["", "Nice", ""]),
            (vec!["NO"], vec!["", "NO"]),
            (vec!["Done. ", "NO_", "REPLY"], vec!["Done. ", "", "", ""]),
            (vec!["Done. NO_REPLY", " it is"], vec!["Done. ", "NO_REPLY it is", ""]),
            (vec!["`NO_REPLY", "`"], vec!["", "", ""]),
            (vec!["**", "Note**"], vec!["", "**Note**", ""]),
            (vec!["\n\n", "NO_REPLY"], vec!["\n\n", "", ""]),
            (vec!["say `NO_REPLY`"], vec!["say `NO_REPLY`", ""]),
            (vec!["PIANO_REPLY"], vec!["PIANO_REPLY", ""]),
        ] {
            assert_eq!(stream(&pieces), expected, "{pieces:?}");
        }
    }

    #[test]
    fn a_flood_of_what_might_be_the_token_is_let_through() {
        let flood = "NO_REPLY ".repeat(1000);
        assert!(stream(&[&flood])[0].len() > flood.len() - 2 * HELD_MAX_BYTES);
        let spaces = " ".repeat(100_000);
        assert_eq!(stream(&[&spaces]), [spaces.as_str(), ""]);
    }

    proptest! {
        #[test]
        fn every_slicing_gives_the_same_and_only_tokens_are_lost(
            parts in prop::collection::vec(
                prop::sample::select(vec!["NO", "_REPLY", "N", " ", "\n", ".", "`", "*", "word", "é", "NO_REPLY"]),
                0..24,
            ),
            every in 1_usize..5,
        ) {
            let whole = parts.concat();
            let chars: Vec<String> = whole.chars().map(String::from).collect();
            let pieces: Vec<String> = chars.chunks(every).map(|chunk| chunk.concat()).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let shown = stream(&pieces).concat();
            prop_assert_eq!(&shown, &stream(&[&whole]).concat());
            if is_silent(&whole) {
                prop_assert!(shown.trim().is_empty(), "{shown:?}");
            } else {
                prop_assert_eq!(shown.trim_end(), without_trailing(&whole).trim_end());
            }
        }
    }
}
