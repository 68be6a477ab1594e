//! Lenient parsers for the metadata of an answer, so that wrong metadata never loses the answer: token counts,
//! positions and stop reasons, in any form that a server sends. Unreadable values count as missing.

use std::borrow::Cow;

use belay_protocol::ModelError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::failure::network;
use crate::wire::excerpt;

/// Most tokens of a request that are accepted. 1,000,000,000: a thousand times the largest existing context. A greater
/// number would use up the budget of a day at once.
const TOKENS_MAX: u64 = 1_000_000_000;

/// A number of tokens, or a position: a whole number, a fraction (rounded), or either in a string. `None` for anything
/// else, including negative and infinite numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) Option<u64>);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Read as raw text, because the parser rejects a number that does not fit.
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        let text = raw.trim_matches('"').trim();
        let fraction = || text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        // A conversion out of range gives the largest number.
        Ok(Self(text.parse().ok().or_else(|| fraction().map(|number| number.round() as u64))))
    }
}

impl Count {
    /// The number, if it is a plausible number of tokens.
    pub(crate) fn tokens(self) -> Option<u64> {
        self.0.filter(|count| *count <= TOKENS_MAX)
    }
}

/// A word, such as a stop reason. A number is kept as its text. Anything else that is not `null` is an empty word.
#[derive(Debug)]
pub(crate) struct Word<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Word<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'de RawValue>::deserialize(deserializer)?.get();
        Ok(Self(match raw.as_bytes().first() {
            Some(b'"') => serde_json::from_str(raw).map(Cow::Owned).unwrap_or_default(),
            Some(b'-' | b'0'..=b'9') => Cow::Borrowed(raw),
            _ => Cow::Borrowed(""),
        }))
    }
}

/// The word; empty if there is none.
pub(crate) fn word<'a>(word: &'a Option<Word<'_>>) -> &'a str {
    word.as_ref().map(|word| &*word.0).unwrap_or_default()
}

/// Parses an object of metadata; `None` if it has another form.
pub(crate) fn object<T: DeserializeOwned>(raw: Option<&RawValue>) -> Option<T> {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
}

/// Parses an event or a body with `take`. If that fails, calls `take` again with `null` for each `NaN` and `Infinity`,
/// which Python writes and JSON does not have.
///
/// # Errors
/// The data is not of the form `what`, or an error of `take`.
pub(crate) fn read<R>(
    data: &[u8],
    what: &str,
    mut take: impl FnMut(&[u8]) -> Result<Result<R, ModelError>, serde_json::Error>,
) -> Result<R, ModelError> {
    let read = take(data).or_else(|error| match without_nan(data) {
        Some(fixed) => take(&fixed),
        None => Err(error),
    });
    read.map_err(|error| network(format!("not {what} ({error}): {}", excerpt(data))))?
}

/// The same JSON with `null` for each `NaN` and `Infinity` outside of strings; `None` if it contains none.
fn without_nan(data: &[u8]) -> Option<Vec<u8>> {
    const NAMES: [&[u8]; 4] = [b"NaN", b"Infinity", b"-Infinity", b"-NaN"];
    let mut out = Vec::with_capacity(data.len());
    let (mut at, mut in_string, mut replaced) = (0, false, false);
    while let Some(&byte) = data.get(at) {
        if !in_string && let Some(name) = NAMES.iter().find(|name| data[at..].starts_with(name)) {
            out.extend_from_slice(b"null");
            at += name.len();
            replaced = true;
            continue;
        }
        // An escaped character is copied with its backslash, so that an escaped quote does not end the string.
        let copied = if in_string && byte == b'\\' { 2 } else { 1 };
        in_string ^= byte == b'"';
        out.extend_from_slice(&data[at..data.len().min(at + copied)]);
        at += copied;
    }
    replaced.then_some(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn counts_are_read_in_whatever_form_they_come() {
        for (raw, count) in [
            ("0", Some(0)),
            ("12", Some(12)),
            ("12.0", Some(12)),
            ("12.6", Some(13)),
            ("1.2e1", Some(12)),
            ("\"12\"", Some(12)),
            ("\" 12.0 \"", Some(12)),
            ("1000000000", Some(TOKENS_MAX)),
            ("1000000001", None),
            ("18446744073709551616", None),
            ("1e999", None),
            ("-1", None),
            ("-0.5", None),
            ("\"NaN\"", None),
            ("\"inf\"", None),
            ("\"many\"", None),
            ("\"\"", None),
            ("null", None),
            ("true", None),
            ("[1]", None),
            ("{\"n\":1}", None),
        ] {
            assert_eq!(serde_json::from_str::<Count>(raw).unwrap().tokens(), count, "{raw}");
        }
    }

    #[test]
    fn words_that_are_none_are_empty() {
        for (raw, said) in
            [("\"stop\"", "stop"), ("\"a\\nb\"", "a\nb"), ("7", "7"), ("[]", ""), ("{}", ""), ("true", "")]
        {
            assert_eq!(serde_json::from_str::<Word<'_>>(raw).unwrap().0, said, "{raw}");
        }
    }

    #[test]
    fn nan_is_replaced_outside_of_strings_alone() {
        for (json, fixed) in [
            ("{\"a\":NaN}", Some("{\"a\":null}")),
            ("[NaN,Infinity,-Infinity,\"NaN\"]", Some("[null,null,null,\"NaN\"]")),
            ("{\"a\":\"\\\"NaN\"}", None),
            ("{\"a\":\"\\\\\",\"b\":NaN}", Some("{\"a\":\"\\\\\",\"b\":null}")),
            ("\"cut\\", None),
        ] {
            assert_eq!(without_nan(json.as_bytes()), fixed.map(|fixed| fixed.as_bytes().to_vec()), "{json}");
        }
    }
}
