//! Parses the answer of the judge.

use serde_json::{Map, Value};

/// The key of the confidence. It is specific because a generic name confused models (Gemini CLI's experience).
pub(super) const CONFIDENCE: &str = "unproductive_state_confidence";

/// The key of the reasoning, which the answer must contain before the confidence.
pub(super) const ANALYSIS: &str = "unproductive_state_analysis";

/// Most positions at which an object is searched for. 64: an answer contains one object, and its reasoning may quote a
/// few.
const MAX_PLACES: usize = 64;

/// The confidence that the run is stuck, from 0 to 1. `None`: the answer has no valid confidence. The question then
/// counts as failed.
pub fn parse(answer: &str) -> Option<f64> {
    let confidence = match object(answer)?.get(CONFIDENCE)? {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    (0.0..=1.0).contains(&confidence).then_some(confidence)
}

/// The reasoning of the judge. `None`: the answer contains none.
pub fn analysis(answer: &str) -> Option<String> {
    object(answer)?.get(ANALYSIS)?.as_str().map(str::to_owned)
}

/// The last object of the answer that contains the confidence. Models write reasoning before it and wrap it in a fence.
fn object(answer: &str) -> Option<Map<String, Value>> {
    let places = answer.char_indices().rev().filter(|(_, c)| *c == '{').take(MAX_PLACES);
    places
        .filter_map(|(at, _)| serde_json::Deserializer::from_str(&answer[at..]).into_iter().next()?.ok())
        .find(|object: &Map<String, Value>| object.contains_key(CONFIDENCE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_found_in_whatever_surrounds_it() {
        for (answer, expected) in [
            (r#"{"unproductive_state_analysis":"fine","unproductive_state_confidence":0.2}"#, Some(0.2)),
            (r#"{"unproductive_state_confidence":1}"#, Some(1.0)),
            (r#"{"unproductive_state_confidence":"0.95"}"#, Some(0.95)),
            ("```json\n{\"unproductive_state_confidence\": 0.9}\n```\nThat is all.", Some(0.9)),
            (r#"It called f({"x":1}) twice. {"unproductive_state_confidence":0.4, "more":{"a":{}}}"#, Some(0.4)),
            (r#"First {"unproductive_state_confidence":0.1}, no: {"unproductive_state_confidence":0.7}"#, Some(0.7)),
            (r#"{"analysis":"{braces} in {text}","unproductive_state_confidence":0.3}"#, Some(0.3)),
            (r#"{"unproductive_state_confidence":95}"#, None),
            (r#"{"unproductive_state_confidence":-0.1}"#, None),
            (r#"{"unproductive_state_confidence":"NaN"}"#, None),
            (r#"{"unproductive_state_confidence":"very"}"#, None),
            (r#"{"unproductive_state_confidence":null}"#, None),
            (r#"{"confidence":0.9}"#, None),
            (r#"{"unproductive_state_confidence":0.9"#, None),
            ("0.9", None),
            ("", None),
        ] {
            assert_eq!(parse(answer), expected, "{answer}");
        }
        assert_eq!(parse(&"{".repeat(100_000)), None, "nonsense is read in bounded time");
    }

    #[test]
    fn the_reasoning_is_read_beside_it() {
        let answer = r#"{"unproductive_state_analysis":"It reads a.txt again.","unproductive_state_confidence":0.95}"#;
        assert_eq!(analysis(answer).as_deref(), Some("It reads a.txt again."));
        assert_eq!(analysis(r#"{"unproductive_state_confidence":0.95}"#), None);
    }
}
