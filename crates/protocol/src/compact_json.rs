//! JSON texts without spaces, without a tree of them.

use std::borrow::Cow;

/// The deepest nesting that is passed on unread. 64: half of what a tree can have.
const MAX_DEPTH: usize = 64;

/// The longest number that is passed on unread, in digits: no such number is too large for a tree.
const MAX_DIGITS: usize = 40;

/// The text without the spaces between its parts. `None`: only its tree shows whether it has one, because it is deep, or
/// has a number with an exponent or many digits, or half of a character.
///
/// The text has to be JSON otherwise.
pub(crate) fn compact(json: &str) -> Option<Cow<'_, str>> {
    let bytes = json.as_bytes();
    let mut out = String::new();
    let (mut at, mut kept, mut depth) = (0, 0, 0_usize);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = behind_string(bytes, at)?,
            b'0'..=b'9' => at = behind_digits(bytes, at)?,
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return None;
                }
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            b' ' | b'\n' | b'\r' | b'\t' => {
                if out.capacity() == 0 {
                    out.reserve(json.len());
                }
                out.push_str(&json[kept..at]);
                at += 1;
                kept = at;
            }
            _ => at += 1,
        }
    }
    if kept == 0 {
        return Some(Cow::Borrowed(json));
    }
    out.push_str(&json[kept..]);
    Some(Cow::Owned(out))
}

/// The place behind the string that begins here.
fn behind_string(bytes: &[u8], begin: usize) -> Option<usize> {
    let mut at = begin + 1;
    loop {
        match *bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' if is_half_character(&bytes[at + 1..]) => return None,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Whether this is `u` and the number of a surrogate, as `ud83d`. Two of them are one character.
fn is_half_character(escape: &[u8]) -> bool {
    matches!(escape, [b'u', b'd' | b'D', b'8'..=b'9' | b'a'..=b'f' | b'A'..=b'F', ..])
}

/// The place behind the digits that begin here, unless they are many or an exponent follows.
fn behind_digits(bytes: &[u8], begin: usize) -> Option<usize> {
    let mut at = begin;
    while bytes.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    let is_plain = at - begin <= MAX_DIGITS && !matches!(bytes.get(at), Some(b'e' | b'E'));
    is_plain.then_some(at)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use serde_json::value::RawValue;

    use super::*;

    #[test]
    fn spaces_go_and_everything_else_stays() {
        for (text, expected) in [
            ("{ \"a\" : [ 1 , -2.50,\t{} ],\r\n\"b c\": \" d  e \" }", "{\"a\":[1,-2.50,{}],\"b c\":\" d  e \"}"),
            (r#"{"a":true,"b":null,"c":false}"#, r#"{"a":true,"b":null,"c":false}"#),
            (r#"["\"} ]", "\\", "\\\" {"]"#, r#"["\"} ]","\\","\\\" {"]"#),
            (r#"["\u00e9", "漢\/"]"#, r#"["\u00e9","漢\/"]"#),
            ("7", "7"),
        ] {
            let found = compact(text).expect("a plain text");
            assert_eq!(found, expected);
            let tree = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
            assert_eq!(tree(&found), tree(text));
        }
    }

    #[test]
    fn a_text_that_may_have_no_tree_is_read() {
        let deep = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(compact(&deep(MAX_DEPTH)).is_some());
        for text in [
            deep(MAX_DEPTH + 1).as_str(),
            &format!("[{}]", "9".repeat(400)),
            "[1e999]",
            "[0.1E3]",
            r#"["\ud83d"]"#,
            r#"["\uDE00 "]"#,
            r#"{"\uDfff":1}"#,
        ] {
            assert!(serde_json::from_str::<&RawValue>(text).is_ok(), "JSON by its form: {text}");
            assert_eq!(compact(text), None, "{text}");
        }
    }

    #[test]
    fn each_kept_text_has_a_tree() {
        for text in [
            format!("{}1{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH)),
            "9".repeat(MAX_DIGITS),
            format!("-{0}.{0}", "9".repeat(MAX_DIGITS)),
            r#""\ud7ff\ue000\b\f\n\u0000""#.to_owned(),
        ] {
            assert_eq!(compact(&text).as_deref(), Some(text.as_str()));
            assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
        }
    }
}
