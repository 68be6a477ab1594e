//! Reading conditions as a person writes them, with messages that say what was meant.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::{Condition, ToolCount};

/// Every word that a condition can begin with.
pub(super) const WORDS: &[&str] = &[
    "any",
    "all",
    "not",
    "steps",
    "wall_clock_s",
    "active_s",
    "model_calls",
    "tool_calls",
    "tool_calls_of",
    "tokens_in",
    "tokens_out",
    "tokens_total",
    "run_usd",
    "session_usd",
    "output_bytes",
    "consecutive_errors",
    "empty_replies",
    "repeated_replies",
    "unknown_tools",
    "invalid_arguments",
    "approval_reasks",
    "compactions_without_gain",
    "tool_loop",
    "chanting",
    "says",
    "calls",
];

/// How near a word must be to be named as the one that was meant: the usual bar of strsim's users for spelling mistakes.
const NEAR: f64 = 0.7;

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
    Ok(match key {
        "any" => Condition::Any(map.next_value()?),
        "all" => Condition::All(map.next_value()?),
        "not" => Condition::Not(map.next_value()?),
        "steps" => Condition::Steps(number(map)?),
        "wall_clock_s" => Condition::WallClockS(number(map)?),
        "active_s" => Condition::ActiveS(number(map)?),
        "model_calls" => Condition::ModelCalls(number(map)?),
        "tool_calls" => Condition::ToolCalls(number(map)?),
        "tool_calls_of" => Condition::ToolCallsOf(map.next_value::<ToolCount>()?),
        "tokens_in" => Condition::TokensIn(number(map)?),
        "tokens_out" => Condition::TokensOut(number(map)?),
        "tokens_total" => Condition::TokensTotal(number(map)?),
        "run_usd" => Condition::RunUsd(dollars(map)?),
        "session_usd" => Condition::SessionUsd(dollars(map)?),
        "output_bytes" => Condition::OutputBytes(number(map)?),
        "consecutive_errors" => Condition::ConsecutiveErrors(number(map)?),
        "empty_replies" => Condition::EmptyReplies(number(map)?),
        "repeated_replies" => Condition::RepeatedReplies(flag(map, key)?),
        "unknown_tools" => Condition::UnknownTools(number(map)?),
        "invalid_arguments" => Condition::InvalidArguments(number(map)?),
        "approval_reasks" => Condition::ApprovalReasks(number(map)?),
        "compactions_without_gain" => Condition::CompactionsWithoutGain(number(map)?),
        "tool_loop" => Condition::ToolLoop(flag(map, key)?),
        "chanting" => Condition::Chanting(flag(map, key)?),
        "says" => Condition::Says(text(map)?),
        "calls" => Condition::Calls(text(map)?),
        _ => return Err(A::Error::custom(unknown(key))),
    })
}

fn unknown(key: &str) -> String {
    let likeness = |word: &&&str| strsim::jaro_winkler(key, word);
    let nearest = WORDS.iter().max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    match nearest.filter(|word| likeness(word) >= NEAR) {
        Some(word) => format!("unknown condition `{key}`; did you mean `{word}`?"),
        None => format!("unknown condition `{key}`; there are {}", WORDS.join(", ")),
    }
}

/// A whole number of at least 1.
pub(super) fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = u64::try_from(i64::deserialize(deserializer)?).ok();
    number.filter(|number| *number >= 1).ok_or_else(|| D::Error::custom("must be a whole number of at least 1"))
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

/// Dollars: more than nothing, at most a thousand million.
fn dollars<'de, A: MapAccess<'de>>(map: &mut A) -> Result<f64, A::Error> {
    match map.next_value::<f64>()? {
        usd if usd > 0.0 && usd <= 1e9 => Ok(usd),
        _ => Err(A::Error::custom("must be a number of dollars above 0, at most a thousand million")),
    }
}

/// A condition that is either there or not; its opposite is written with `not`.
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
