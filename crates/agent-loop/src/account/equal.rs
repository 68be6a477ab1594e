//! The part of several results that stayed equal.

use std::borrow::Cow;

use belay_protocol::Arguments;
use belay_text::untrusted;
use serde_json::Value;

use super::calls::SeenCall;
use super::target::line;

/// Longest first line that is shown, in bytes.
const FIRST_BYTES: usize = 80;

/// The only differences between results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Differs {
    /// None.
    Nothing,
    /// Numbers.
    Numbers,
    /// Numbers, and words that contain a digit: ids, addresses.
    Ids,
    /// The words of the call's arguments.
    Arguments,
}

/// Results that are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Equal {
    /// Number of lines of the newest one.
    pub lines: usize,
    /// The part that differs nevertheless.
    pub differs: Differs,
    /// The first line of the newest one, at most 80 bytes.
    pub first: String,
}

impl Differs {
    /// The word in the evidence of a run's end. `None`: there is no difference.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Numbers => Some("numbers"),
            Self::Ids => Some("ids"),
            Self::Arguments => Some("arguments"),
        }
    }
}

impl Equal {
    /// Compares the results of these calls, the newest first. `None`: they are not equal, or there are less than two.
    pub(super) fn of(calls: &[&SeenCall<'_>]) -> Option<Self> {
        let results: Vec<(&Arguments, Cow<'_, str>)> = calls
            .iter()
            .filter_map(|call| Some((call.arguments, untrusted::without(call.result?.trim_end()))))
            .collect();
        let (_, newest) = results.first().filter(|_| results.len() > 1)?;
        let lines = newest.trim().lines().count();
        if results.iter().any(|(_, text)| text.trim().lines().count() != lines) {
            return None;
        }
        let differs =
            [Differs::Nothing, Differs::Numbers, Differs::Arguments, Differs::Ids].into_iter().find(|differs| {
                let mut masked = results.iter().map(|(arguments, text)| differs.mask(arguments, text.trim_end()));
                masked.next().is_some_and(|first| masked.all(|other| other == first))
            })?;
        Some(Self { lines, differs, first: first_line(newest) })
    }

    /// Whether two calls have equal results.
    pub(super) fn of_two(one: &SeenCall<'_>, other: &SeenCall<'_>) -> bool {
        Self::of(&[one, other]).is_some()
    }
}

/// The first line of a text that is not blank, at most 80 bytes.
pub(super) fn first_line(text: &str) -> String {
    let text = untrusted::without(text);
    line(text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default(), FIRST_BYTES)
}

impl Differs {
    /// The text without this difference.
    fn mask<'t>(self, arguments: &Arguments, text: &'t str) -> Cow<'t, str> {
        match self {
            Self::Nothing => Cow::Borrowed(text),
            Self::Numbers => Cow::Owned(words(text, |c| c.is_ascii_digit())),
            Self::Ids => Cow::Owned(words(text, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))),
            Self::Arguments => {
                let Arguments::Object(map) = arguments else { return Cow::Borrowed(text) };
                let asked = map.values().filter_map(Value::as_str).filter(|asked| asked.len() > 1);
                Cow::Owned(asked.fold(text.to_owned(), |text, asked| text.replace(asked, "#")))
            }
        }
    }
}

/// The text with `#` for each run of such characters that contains a digit.
fn words(text: &str, of_word: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let end = rest.find(|c| !of_word(c)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(if end == 0 { c.len_utf8() } else { end });
        let masked = end > 0 && word.contains(|c: char| c.is_ascii_digit());
        out.push_str(if masked { "#" } else { word });
        rest = behind;
    }
    out
}
