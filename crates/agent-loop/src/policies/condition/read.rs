//! Parses and writes conditions in the form of the settings. The error messages name the word that was probably meant.

use std::fmt;

use belay_text::near::nearest;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::policies::counters::{TABLE, Unit};
use crate::policies::rule::{Condition, ToolCount, micro_usd, positive};

/// The words of conditions that are not counters.
const OTHERS: [&str; 9] =
    ["any", "all", "not", "tool_calls_of", "repeated_replies", "tool_loop", "chanting", "says", "calls"];

/// Every word that a condition can begin with.
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    let (first, last) = OTHERS.split_at(3);
    first.iter().copied().chain(TABLE.iter().map(|row| row.word)).chain(last.iter().copied())
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OneKey)
    }
}

/// A table with exactly one key.
struct OneKey;

impl<'de> Visitor<'de> for OneKey {
    type Value = Condition;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a condition such as { steps = 50 } or { any = [ { … }, { … } ] }")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Condition, A::Error> {
        let Some(key) = map.next_key::<String>()? else {
            return Err(A::Error::custom("an empty condition; write for example { steps = 50 }"));
        };
        let condition = value(&key, &mut map)?;
        match map.next_key::<String>()? {
            None => Ok(condition),
            Some(second) => Err(A::Error::custom(format!(
                "a condition has one key, this one has `{key}` and `{second}`; \
                 join them as {{ all = [ {{ … }}, {{ … }} ] }} or with any"
            ))),
        }
    }
}

fn value<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Condition, A::Error> {
    if let Some(row) = TABLE.iter().find(|row| row.word == key) {
        let threshold = match row.unit {
            Unit::One => number(map)?,
            Unit::Ms => number(map)?.saturating_mul(row.counter.scale()),
            Unit::MicroUsd => micro_usd(dollars(map)?),
        };
        return Ok(Condition::AtLeast(row.counter, threshold));
    }
    Ok(match key {
        "any" => Condition::Any(map.next_value()?),
        "all" => Condition::All(map.next_value()?),
        "not" => Condition::Not(map.next_value()?),
        "tool_calls_of" => Condition::ToolCallsOf(map.next_value::<ToolCount>()?),
        "repeated_replies" => Condition::RepeatedReplies(flag(map, key)?),
        "tool_loop" => Condition::ToolLoop(flag(map, key)?),
        "chanting" => Condition::Chanting(flag(map, key)?),
        "says" => Condition::Says(text(map)?),
        "calls" => Condition::Calls(text(map)?),
        _ => return Err(A::Error::custom(unknown(key))),
    })
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match self {
            Self::Any(parts) => map.serialize_entry("any", parts)?,
            Self::All(parts) => map.serialize_entry("all", parts)?,
            Self::Not(part) => map.serialize_entry("not", part)?,
            Self::AtLeast(counter, threshold) => {
                let (row, scale) = (counter.row(), counter.scale());
                match row.unit {
                    Unit::MicroUsd => map.serialize_entry(row.word, &(*threshold as f64 / scale as f64))?,
                    Unit::Ms if !threshold.is_multiple_of(scale) => {
                        map.serialize_entry(row.word, &(*threshold as f64 / scale as f64))?;
                    }
                    _ => map.serialize_entry(row.word, &(threshold / scale))?,
                }
            }
            Self::ToolCallsOf(of) => map.serialize_entry("tool_calls_of", of)?,
            Self::RepeatedReplies(wanted) => map.serialize_entry("repeated_replies", wanted)?,
            Self::ToolLoop(wanted) => map.serialize_entry("tool_loop", wanted)?,
            Self::Chanting(wanted) => map.serialize_entry("chanting", wanted)?,
            Self::Says(text) => map.serialize_entry("says", text)?,
            Self::Calls(tool) => map.serialize_entry("calls", tool)?,
        }
        map.end()
    }
}

fn unknown(key: &str) -> String {
    match nearest(key, words()) {
        Some(word) => format!("unknown condition `{key}`; did you mean `{word}`?"),
        None => format!("unknown condition `{key}`; there are {}", words().collect::<Vec<_>>().join(", ")),
    }
}

fn number<'de, A: MapAccess<'de>>(map: &mut A) -> Result<u64, A::Error> {
    struct Positive(u64);
    impl<'de> Deserialize<'de> for Positive {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            positive(deserializer).map(Self)
        }
    }
    map.next_value::<Positive>().map(|Positive(number)| number)
}

/// An amount in dollars: above 0, at most one billion.
fn dollars<'de, A: MapAccess<'de>>(map: &mut A) -> Result<f64, A::Error> {
    match map.next_value::<f64>()? {
        usd if usd > 0.0 && usd <= 1e9 => Ok(usd),
        _ => Err(A::Error::custom("must be a number of dollars above 0, at most a thousand million")),
    }
}

/// A flag, which must be true. Its opposite is written with `not`.
fn flag<'de, A: MapAccess<'de>>(map: &mut A, key: &str) -> Result<bool, A::Error> {
    if map.next_value::<bool>()? {
        return Ok(true);
    }
    Err(A::Error::custom(format!("`{key} = false` would never be true; write {{ not = {{ {key} = true }} }}")))
}

fn text<'de, A: MapAccess<'de>>(map: &mut A) -> Result<String, A::Error> {
    match map.next_value::<String>()? {
        text if text.is_empty() => Err(A::Error::custom("must not be empty")),
        text => Ok(text),
    }
}
