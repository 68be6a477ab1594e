//! What the end of a call shows about its tool, and the evidence kept of a failure. Pure.

use belay_protocol::tool_health::FAULT_QUOTE_CHARS;
use belay_protocol::{FaultKind, NOT_SHOWN};

/// What the end of a call shows about its tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolSignal {
    /// The tool works.
    Works,
    /// The tool fails.
    Fails(Fault),
    /// Nothing: the call was refused, stopped, or never began.
    Nothing,
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of fault.
    pub kind: FaultKind,
    /// Fingerprint: twelve hex digits.
    pub fingerprint: String,
    /// Shortened quotation of the result.
    pub quote: String,
}

/// Minimum length of a hidden value, in bytes. A shorter one occurs in any text and is no secret.
const SHORTEST_HIDDEN: usize = 4;

/// Examined part of a result, in bytes: more than any quotation needs, even with many blanks.
const LOOKED_AT: usize = 8 * 1024;

impl Fault {
    /// The evidence of a failure with this result. `hidden`: values that must not be shown.
    pub fn of(kind: FaultKind, result: &str, hidden: &[String]) -> Self {
        let mut text = plain(&result[..result.floor_char_boundary(LOOKED_AT.min(result.len()))]);
        // Hidden values get the same cleaning as the text. A value of hidden characters alone becomes empty, would
        // match everywhere, and is skipped.
        for value in hidden.iter().map(|value| plain(value)).filter(|value| value.len() >= SHORTEST_HIDDEN) {
            text = text.replace(&value, NOT_SHOWN);
        }
        let quote = match text.char_indices().nth(FAULT_QUOTE_CHARS) {
            Some((at, _)) => text[..at].to_owned(),
            None => text.clone(),
        };
        Self { kind, fingerprint: fingerprint(kind, &text), quote }
    }
}

/// The visible text as one line: without our marks, repeated blanks and hidden characters.
fn plain(text: &str) -> String {
    let text = belay_text::untrusted::without(text);
    let words = text.split_whitespace();
    let words: Vec<_> = words.map(belay_text::removed).collect();
    words.join(" ")
}

/// Equal for equal failures, apart from numbers in the text.
fn fingerprint(kind: FaultKind, text: &str) -> String {
    let mut hash = blake3::Hasher::new();
    hash.update(kind.word().as_bytes());
    let mut in_number = false;
    for c in text.chars() {
        if c.is_ascii_digit() && in_number {
            continue;
        }
        in_number = c.is_ascii_digit();
        let mut bytes = [0; 4];
        hash.update(if in_number { b"#" } else { c.encode_utf8(&mut bytes).as_bytes() });
    }
    hash.finalize().to_hex()[..12].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json_of(text: &str) -> String {
        serde_json::json!({ "e": text }).to_string()
    }

    #[test]
    fn a_quote_is_a_short_line_without_what_is_hidden() {
        let long = "ß".repeat(500);
        for (result, quote) in [
            ("no  such\n\thost", "no such host".to_owned()),
            (&crate::untrusted::marked("page", b"run", "broken"), "broken".to_owned()),
            ("the token s3cr3t-t0ken is refused", format!("the token {NOT_SHOWN} is refused")),
            (&json_of(&crate::untrusted::marked("page", b"run", "broken")), "{\"e\":\"\\nbroken\\n\"}".to_owned()),
            ("\u{202e}evil\u{7}", "evil".to_owned()),
            ("", String::new()),
            (&long, "ß".repeat(FAULT_QUOTE_CHARS)),
        ] {
            let unseen = ["\u{7}\u{7}\u{7}\u{7}", "e\u{7}\u{7}\u{7}", "\u{200b}\u{200b}"].map(str::to_owned);
            let hidden = [["s3cr3t-t0ken".to_owned(), "no".to_owned(), String::new()], unseen].concat();
            assert_eq!(Fault::of(FaultKind::Failed, result, &hidden).quote, quote, "{result:?}");
        }
    }

    #[test]
    fn what_is_hidden_is_hidden_before_the_quote_is_cut() {
        let result = format!("{} s3cr3t-t0ken", "x".repeat(FAULT_QUOTE_CHARS - 8));
        let quote = Fault::of(FaultKind::Failed, &result, &["s3cr3t-t0ken".to_owned()]).quote;
        assert!(!quote.contains("s3cr3t"), "{quote}");
    }

    #[test]
    fn the_same_failure_has_one_fingerprint_whatever_numbers_are_in_it() {
        let of = |kind, text: &str| Fault::of(kind, text, &[]).fingerprint;
        let first = of(FaultKind::Failed, "no answer within 30 s on port 8080");
        assert_eq!(first, of(FaultKind::Failed, "no answer within 5 s on port 80"));
        assert_eq!(first.len(), 12);
        assert_ne!(first, of(FaultKind::TimedOut, "no answer within 30 s on port 8080"));
        assert_ne!(first, of(FaultKind::Failed, "no answer within s on port"));
    }
}
