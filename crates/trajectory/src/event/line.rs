//! Parses a line of a recording.

use std::borrow::Cow;
use std::fmt;

use belay_text::near::nearest;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::outcome::outcome_of_word;
use super::{CallArguments, TrajectoryEvent, outcome_of};

/// The names of the thirteen forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Tool,
    ToolResult,
    Text,
    Assistant,
    User,
    Turn,
    Usage,
    ClockMs,
    Other,
    Reset,
    Recover,
    Disable,
    Compacted,
}

const KEYS: &[(&str, Key)] = &[
    ("tool", Key::Tool),
    ("tool_result", Key::ToolResult),
    ("text", Key::Text),
    ("assistant", Key::Assistant),
    ("user", Key::User),
    ("turn", Key::Turn),
    ("usage", Key::Usage),
    ("clock_ms", Key::ClockMs),
    ("other", Key::Other),
    ("reset", Key::Reset),
    ("recover", Key::Recover),
    ("disable", Key::Disable),
    ("compacted", Key::Compacted),
];

impl Key {
    fn of(word: &str) -> Option<Self> {
        KEYS.iter().find(|(known, _)| *known == word).map(|(_, key)| *key)
    }

    fn word(self) -> &'static str {
        KEYS.iter().find(|(_, key)| *key == self).map_or("", |(word, _)| word)
    }
}

/// Whether a recording has an event with this name.
pub fn is_event_name(word: &str) -> bool {
    Key::of(word).is_some()
}

/// The error of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LineError {
    /// The position in the line, in bytes from 1, if there is one.
    pub(crate) column: Option<u64>,
    /// The kind of mistake.
    pub(crate) fault: Fault,
}

/// The kinds of mistakes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    NotJson(String),
    NotAnObject,
    NoEvent,
    UnknownEvent { key: String, nearest: Option<&'static str> },
    TwoEvents(&'static str, &'static str),
    BadValue { event: &'static str, what: String },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson(what) => write!(f, "not JSON: {what}"),
            Self::NotAnObject => f.write_str("an event is a JSON object, such as {\"turn\":true}"),
            Self::NoEvent => f.write_str("an object without an event, such as {\"turn\":true}"),
            Self::UnknownEvent { key, nearest: Some(nearest) } => {
                write!(f, "there is no event `{key}`; did you mean `{nearest}`?")
            }
            Self::UnknownEvent { key, nearest: None } => {
                let known: Vec<_> = KEYS.iter().map(|(word, _)| *word).collect();
                write!(f, "there is no event `{key}`; there are {}", known.join(", "))
            }
            Self::TwoEvents(first, second) => {
                write!(f, "two events on one line: `{first}` and `{second}`; write each on its own")
            }
            Self::BadValue { event, what } => write!(f, "`{event}`: {what}"),
        }
    }
}

impl TrajectoryEvent {
    /// Parses one line.
    pub(crate) fn parse(line: &str) -> Result<Self, LineError> {
        let broken = |error: &serde_json::Error| LineError {
            column: Some(error.column() as u64),
            fault: Fault::NotJson(plain(error)),
        };
        if !line.trim_start().starts_with('{') {
            return Err(match serde_json::from_str::<IgnoredAny>(line) {
                Ok(_) => LineError { column: None, fault: Fault::NotAnObject },
                Err(error) => broken(&error),
            });
        }
        let found: Line<'_> = serde_json::from_str(line).map_err(|error| broken(&error))?;
        let fault = match found {
            Line { second: Some((first, second)), .. } => Fault::TwoEvents(first.word(), second.word()),
            Line { event: Some((key, raw)), .. } => {
                // Both point into the same text.
                let column = raw.get().as_ptr() as usize - line.as_ptr() as usize + 1;
                return event_of(key, raw).map_err(|what| LineError {
                    column: Some(column as u64),
                    fault: Fault::BadValue { event: key.word(), what },
                });
            }
            Line { unknown: Some(key), .. } => {
                let nearest = nearest(&key, KEYS.iter().map(|(word, _)| *word));
                Fault::UnknownEvent { key, nearest }
            }
            Line { .. } => Fault::NoEvent,
        };
        Err(LineError { column: None, fault })
    }
}

/// An object with one event. Keys that name no event are ignored; the first of them is stored for the error if there is
/// no event.
#[derive(Default)]
struct Line<'a> {
    event: Option<(Key, &'a RawValue)>,
    second: Option<(Key, Key)>,
    unknown: Option<String>,
}

impl<'de> Deserialize<'de> for Line<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(LineVisitor)
    }
}

struct LineVisitor;

impl<'de> Visitor<'de> for LineVisitor {
    type Value = Line<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Line<'de>, A::Error> {
        let mut line = Line::default();
        while let Some(Word(key)) = map.next_key()? {
            match (Key::of(&key), line.event) {
                // The two stand on one line: older readers know only `other`.
                (Some(Key::Other), Some((Key::Compacted, _))) => {
                    map.next_value::<IgnoredAny>()?;
                }
                (Some(key), None) | (Some(key @ Key::Compacted), Some((Key::Other, _))) => {
                    line.event = Some((key, map.next_value()?));
                }
                (Some(key), Some((first, _))) => {
                    line.second.get_or_insert((first, key));
                    map.next_value::<IgnoredAny>()?;
                }
                (None, _) => {
                    line.unknown.get_or_insert_with(|| key.into_owned());
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(line)
    }
}

/// A key, borrowed if the text contains no escapes.
#[derive(Deserialize)]
struct Word<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Call<'a> {
    name: String,
    #[serde(borrow, default, alias = "arguments", alias = "input")]
    args: Option<&'a RawValue>,
    #[serde(default)]
    id: Option<Value>,
}

#[derive(Deserialize)]
struct Answer<'a> {
    name: String,
    #[serde(default)]
    ok: Option<bool>,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    outcome: Option<String>,
}

#[derive(Deserialize)]
struct Tokens {
    #[serde(default, alias = "input_tokens", alias = "prompt_tokens")]
    input: Option<f64>,
    #[serde(default, alias = "output_tokens", alias = "completion_tokens")]
    output: Option<f64>,
}

#[derive(Deserialize)]
struct Lengths {
    #[serde(default)]
    before: Option<f64>,
    #[serde(default)]
    after: Option<f64>,
}

fn event_of(key: Key, raw: &RawValue) -> Result<TrajectoryEvent, String> {
    let flag = |event| match raw.get() {
        "false" | "null" => Err("says that it did not happen; leave the line out".to_owned()),
        _ => Ok(event),
    };
    match key {
        Key::Text => Ok(TrajectoryEvent::Text(string(raw)?)),
        Key::Assistant => Ok(TrajectoryEvent::Assistant(string(raw)?)),
        Key::User => Ok(TrajectoryEvent::User(string(raw)?)),
        Key::Other => Ok(TrajectoryEvent::Other(string_or_json(raw))),
        Key::Turn => flag(TrajectoryEvent::Turn),
        Key::Reset => flag(TrajectoryEvent::Reset),
        Key::Recover => flag(TrajectoryEvent::Recover),
        Key::Disable => flag(TrajectoryEvent::Disable),
        Key::ClockMs => {
            let exact = serde_json::from_str::<u64>(raw.get()).ok();
            let rounded = || serde_json::from_str::<f64>(raw.get()).ok().and_then(whole);
            let ms = exact.or_else(rounded).ok_or("must be a number of milliseconds, 0 or more")?;
            Ok(TrajectoryEvent::Clock(ms))
        }
        Key::Usage => {
            let Tokens { input, output } = serde_json::from_str(raw.get()).map_err(|error| plain(&error))?;
            let count = |tokens: Option<f64>| whole(tokens.unwrap_or(0.0)).ok_or("token counts are 0 or more");
            Ok(TrajectoryEvent::Usage { input: count(input)?, output: count(output)? })
        }
        Key::Compacted if !raw.get().starts_with('{') => flag(TrajectoryEvent::Compacted { before: 0, after: 0 }),
        Key::Compacted => {
            let Lengths { before, after } = serde_json::from_str(raw.get()).map_err(|error| plain(&error))?;
            let count = |tokens: Option<f64>| whole(tokens.unwrap_or(0.0)).ok_or("token counts are 0 or more");
            Ok(TrajectoryEvent::Compacted { before: count(before)?, after: count(after)? })
        }
        Key::Tool => call(raw),
        Key::ToolResult => answer(raw),
    }
}

fn call(raw: &RawValue) -> Result<TrajectoryEvent, String> {
    if let Ok(name) = serde_json::from_str::<String>(raw.get()) {
        return Ok(TrajectoryEvent::tool(name, "{}"));
    }
    let Call { name, args, id } = serde_json::from_str(raw.get()).map_err(|error| plain(&error))?;
    let args = args.map_or_else(|| CallArguments::parse(""), CallArguments::of_json);
    Ok(TrajectoryEvent::Tool { id: id.and_then(id_of), name, args })
}

fn answer(raw: &RawValue) -> Result<TrajectoryEvent, String> {
    let Answer { name, ok, text, id, outcome } = serde_json::from_str(raw.get()).map_err(|error| plain(&error))?;
    let text = text.map(string_or_json).unwrap_or_default();
    let outcome = match &outcome {
        None => outcome_of(ok.unwrap_or(true), &text),
        Some(word) => outcome_of_word(word).ok_or_else(|| format!("there is no outcome `{word}`"))?,
    };
    Ok(TrajectoryEvent::ToolResult { id: id.and_then(id_of), name, outcome, text })
}

/// Converts a number of milliseconds or tokens; fractions are rounded down.
fn whole(number: f64) -> Option<u64> {
    (number.is_finite() && number >= 0.0).then_some(number as u64)
}

/// An id as text, whatever its JSON type.
fn id_of(id: Value) -> Option<String> {
    match id {
        Value::Null => None,
        Value::String(id) => Some(id),
        other => Some(other.to_string()),
    }
}

/// The message of a JSON error without its position, which is reported separately.
fn plain(error: &serde_json::Error) -> String {
    error.to_string().split(" at line ").next().unwrap_or_default().to_owned()
}

/// Parses a string. Lone surrogates, which programs with UTF-16 strings produce, become replacement characters.
fn string(raw: &RawValue) -> Result<String, String> {
    serde_json::from_str(raw.get())
        .or_else(|_| serde_json::from_str(&without_lone_surrogates(raw.get())))
        .map_err(|_| "must be a string".to_owned())
}

/// Parses a string, or returns other JSON as its text. `null` gives an empty text.
fn string_or_json(raw: &RawValue) -> String {
    match raw.get() {
        "null" => String::new(),
        json => string(raw).unwrap_or_else(|_| json.to_owned()),
    }
}

/// JSON text in which each lone surrogate, such as `\ud83d` without its other half, is replaced by `\ufffd`.
fn without_lone_surrogates(json: &str) -> String {
    let half = |at: usize| {
        let hex = json.get(at..at + 6)?.strip_prefix("\\u")?;
        u32::from_str_radix(hex, 16).ok().filter(|code| (0xD800..0xE000).contains(code))
    };
    let mut out = String::with_capacity(json.len());
    let mut at = 0;
    while let Some(c) = json[at..].chars().next() {
        let taken = match (c, half(at)) {
            ('\\', Some(high)) if high < 0xDC00 && half(at + 6).is_some_and(|low| low >= 0xDC00) => 12,
            ('\\', Some(_)) => {
                out.push_str("\\ufffd");
                at += 6;
                continue;
            }
            // An escaped character does not begin an escape itself: `\\ud83d` is six plain characters.
            ('\\', None) => 1 + json[at + 1..].chars().next().map_or(0, char::len_utf8),
            _ => c.len_utf8(),
        };
        out.push_str(&json[at..at + taken]);
        at += taken;
    }
    out
}

#[cfg(test)]
mod tests;
