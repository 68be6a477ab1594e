//! The answer of a hook as text: at most [`MAX_ANSWER_BYTES`], with one JSON object of one key.

use belay_protocol::{HookAnswer, HookEvent, HookKind, HookPoint};
use serde_json::{Map, Value};

/// Longest answer, in bytes. 64 KiB: the size of a tool result for the model, which a hook may return changed.
pub(crate) const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// The hint for an answer that cannot be parsed.
const SHAPES: &str = r#"answer with {"continue":true}, {"change":{…}} or {"refuse":"why"}, or with nothing"#;

/// Parses an answer. An empty answer means: continue. The output of observing hooks is ignored.
///
/// # Errors
/// The problem, and the possible answers.
pub(crate) fn read(event: &HookEvent, text: &[u8]) -> Result<HookAnswer, String> {
    let observes_only = HookPoint::from_word(event.hook).is_some_and(|point| point.kind() == HookKind::Observe);
    if observes_only || text.trim_ascii().is_empty() {
        return Ok(HookAnswer::Continue);
    }
    let object: Map<String, Value> = serde_json::from_slice(text)
        .map_err(|error| format!("its answer is not one JSON object ({error}); {SHAPES}"))?;
    let mut fields = object.into_iter();
    match (fields.next(), fields.next()) {
        (Some((key, Value::Bool(true))), None) if key == "continue" => Ok(HookAnswer::Continue),
        (Some((key, Value::Object(fields))), None) if key == "change" => Ok(HookAnswer::Change(fields)),
        (Some((key, Value::String(why))), None) if key == "refuse" && !why.trim().is_empty() => {
            Ok(HookAnswer::Refuse(why.trim().to_owned()))
        }
        _ => Err(format!("its answer has an unknown shape; {SHAPES}")),
    }
}

/// The error for an answer that is too long.
pub(crate) fn too_long() -> String {
    format!("its answer is longer than {MAX_ANSWER_BYTES} bytes")
}

#[cfg(test)]
mod tests {
    use belay_protocol::UnixMillis;
    use serde_json::json;

    use super::*;

    fn at(point: HookPoint) -> HookEvent {
        HookEvent { hook: point.word(), at: UnixMillis(0), session: None, run_id: None, data: Value::Null }
    }

    #[test]
    fn an_answer_has_one_of_three_shapes_or_is_empty() {
        let change = |value: Value| match value {
            Value::Object(fields) => Ok(HookAnswer::Change(fields)),
            _ => unreachable!("the table has objects"),
        };
        let unknown = || Err("unknown shape".to_owned());
        for (text, expected) in [
            ("", Ok(HookAnswer::Continue)),
            (" \n", Ok(HookAnswer::Continue)),
            (r#"{"continue":true}"#, Ok(HookAnswer::Continue)),
            (" {\"continue\": true}\n", Ok(HookAnswer::Continue)),
            (r#"{"change":{"text":"b"}}"#, change(json!({"text": "b"}))),
            (r#"{"change":{}}"#, change(json!({}))),
            (r#"{"refuse":" not today "}"#, Ok(HookAnswer::Refuse("not today".into()))),
            (r#"{"refuse":""}"#, unknown()),
            (r#"{"refuse":true}"#, unknown()),
            (r#"{"continue":false}"#, unknown()),
            (r#"{"change":"x"}"#, unknown()),
            (r#"{"continue":true,"refuse":"x"}"#, unknown()),
            (r#"{"block":true}"#, unknown()),
            ("{}", unknown()),
            ("ok", Err("not one JSON object".into())),
            ("[]", Err("not one JSON object".into())),
            ("{\"continue\":true}\n{\"continue\":true}", Err("not one JSON object".into())),
        ] {
            match (read(&at(HookPoint::BeforeToolCall), text.as_bytes()), expected) {
                (Err(found), Err(part)) => assert!(found.contains(&part) && found.contains(SHAPES), "{text}: {found}"),
                (found, expected) => assert_eq!(found, expected, "{text}"),
            }
        }
    }

    #[test]
    fn what_a_hook_says_that_only_looks_on_is_not_read() {
        for text in ["done.", r#"{"refuse":"x"}"#, "{"] {
            assert_eq!(read(&at(HookPoint::AgentEnd), text.as_bytes()), Ok(HookAnswer::Continue));
        }
    }
}
