//! Digests of 64 bits. They are large enough to distinguish the calls and texts of one run, and fast enough for every
//! event.
//!
//! Digests are stored. So the function is defined here and not taken from a library that may change it. An attacker
//! gains nothing by a collision: two calls count as equal, which at worst ends a run.

use belay_protocol::Arguments;
use serde_json::Value;

/// A digest that is being computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest(u64);

/// 2^64 divided by the golden ratio: an odd number with well distributed bits.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

impl Digest {
    pub(crate) fn new() -> Self {
        Self(SPREAD)
    }

    /// Adds eight bytes.
    pub(crate) fn word(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(SPREAD);
        self.0 = mixed ^ (mixed >> 29);
    }

    /// Adds a text and its length. The length keeps two different sequences of texts from giving the same bytes.
    pub(crate) fn text(&mut self, text: &str) {
        self.word(text.len() as u64);
        let (words, rest) = text.as_bytes().as_chunks::<8>();
        for bytes in words {
            self.word(u64::from_le_bytes(*bytes));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
    }

    /// Returns the digest.
    pub(crate) fn end(self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(SPREAD);
        mixed ^ (mixed >> 32)
    }

    /// Adds a JSON value. The order of keys does not matter, and 1 equals 1.0.
    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.word(1),
            Value::Bool(yes) => self.word(2 + u64::from(*yes)),
            Value::Number(number) => {
                self.word(4);
                match (number.as_i64(), number.as_u64(), number.as_f64()) {
                    (Some(whole), _, _) => self.word(whole as u64),
                    (_, Some(whole), _) => self.word(whole),
                    // A whole number that is small enough to be exact.
                    (_, _, Some(float)) if float.fract() == 0.0 && float.abs() < 9e15 => self.word(float as i64 as u64),
                    (_, _, float) => self.word(float.unwrap_or_default().to_bits()),
                }
            }
            Value::String(text) => {
                self.word(5);
                self.text(text);
            }
            Value::Array(items) => {
                self.word(6);
                self.word(items.len() as u64);
                items.iter().for_each(|item| self.value(item));
            }
            Value::Object(entries) => {
                self.word(7);
                self.word(entries.len() as u64);
                self.word(entries.iter().map(|(key, value)| entry(key, value)).fold(0, u64::wrapping_add));
            }
        }
    }
}

/// The digest of one entry of an object. The sum of these digests does not depend on the order, so nothing has to be
/// sorted.
fn entry(key: &str, value: &Value) -> u64 {
    let mut digest = Digest::new();
    digest.text(key);
    digest.value(value);
    digest.end()
}

/// The digest of a tool name.
pub(crate) fn of_name(name: &str) -> u64 {
    let mut digest = Digest::new();
    digest.text(name);
    digest.end()
}

/// The digest of a call: its name and canonical arguments. The canonical form is not written out.
pub(crate) fn of_call(name: &str, arguments: &Arguments) -> u64 {
    let mut digest = Digest::new();
    digest.text(name);
    match arguments {
        Arguments::Malformed(raw) => digest.text(raw),
        Arguments::Object(entries) => {
            digest.word(7);
            digest.word(entries.iter().map(|(key, value)| entry(key, value)).fold(0, u64::wrapping_add));
        }
    }
    digest.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_the_same_whatever_the_order_of_their_keys() {
        for (one, other, same) in [
            (("a", r#"{"x":1,"y":[{"p":1,"q":2}]}"#), ("a", r#"{ "y":[{"q":2,"p":1}], "x":1.0 }"#), true),
            (("a", ""), ("a", "{}"), true),
            (("a", r#"{"x":1}"#), ("a", r#"{"x":2}"#), false),
            (("a", r#"{"x":1}"#), ("a", r#"{"x":"1"}"#), false),
            (("a", r#"{"x":1,"y":2}"#), ("a", r#"{"x":2,"y":1}"#), false),
            (("a", r#"{"x":[1,2]}"#), ("a", r#"{"x":[2,1]}"#), false),
            (("a", r#"{"x":[]}"#), ("a", r#"{"x":{}}"#), false),
            (("a", r#"{"x":null}"#), ("a", "{}"), false),
            (("a", r#"{"x":0.5}"#), ("a", r#"{"x":0.25}"#), false),
            (("a", "{}"), ("b", "{}"), false),
            (("ab", "{"), ("a", "b{"), false),
            (("a", r#"{"x":"12345678"}"#), ("a", r#"{"x":"123456789"}"#), false),
        ] {
            let digest = |(name, raw): (&str, &str)| of_call(name, &Arguments::parse(raw));
            assert_eq!(digest(one) == digest(other), same, "{one:?} {other:?}");
        }
    }
}
